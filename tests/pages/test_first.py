"""The first picture comes soon: the start page loads no heavy package and reads few recordings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPEN_START = """
import json, sys
import streamlit  # it brings a part of plotly by itself
brought = set(sys.modules)
from streamlit.testing.v1 import AppTest
from tests.pages.server import make_visited
make_visited()
from pages.parts import recorded
read, load = [], recorded.load
recorded.load = lambda path: read.append(path.name) or load(path)
recorded.FOLDER = recorded.Path(sys.argv[1])
app = AppTest.from_file(sys.argv[2], default_timeout=60).run()
assert not app.exception, app.exception
packages = ("torch", "transformers", "plotly", "pandas")
heavy = {name for name in set(sys.modules) - brought if name.split(".")[0] in packages}
print(json.dumps([sorted(heavy), read, len(app.get("bidi_component"))]))
"""


def open_start(folder: Path) -> tuple[list[str], list[str], int]:
    """Heavy packages loaded, recordings read, and pictures shown, when a new process opens the start page."""
    command = [sys.executable, "-c", OPEN_START, str(folder), str(ROOT / "app.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def test_the_start_page_loads_nothing_heavy_and_reads_one_recording() -> None:
    folder = ROOT / "assets" / "traces"
    if not (folder / "opening.txt").exists():
        pytest.skip("no recorded traces are here: run make traces")
    heavy, read, pictures = open_start(folder)
    assert heavy == []
    assert read == [(folder / "opening.txt").read_text().strip() + ".jsonl.gz"]
    assert pictures == 1


def test_without_a_named_opening_only_few_recordings_are_read(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / f"prompt{i:02}.eagle.device.jsonl.gz").write_bytes(b"broken")
    heavy, read, pictures = open_start(tmp_path)
    assert heavy == []
    assert len(read) == 6
    assert pictures == 0
