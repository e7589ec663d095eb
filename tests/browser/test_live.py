"""A live run in a real browser: it goes on while the reader is elsewhere, and a reload finds it again."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import ROOT, free_port, wait_for
from tests.toy import toy_folder


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A freshly started app whose target is tiny, and the file of what it logs."""
    address, log = f"http://127.0.0.1:{(port := free_port())}", tmp_path / "log"
    options = ["--server.port", str(port), "--server.headless", "true", "--server.fileWatcherType", "none"]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", *options]
    given = {"DRAFTSCOPE_TARGET": str(toy_folder(tmp_path / "target")), "DRAFTSCOPE_DEVICE": "cpu"}
    with log.open("w") as out:
        app = subprocess.Popen(command, cwd=ROOT, env=os.environ | given, stdout=out, stderr=out)
        wait_for(address)
        yield address, log
        app.terminate()
        app.wait(20)


def test_a_run_outlives_a_visit_elsewhere_and_a_reload(browser: Any, live: tuple[str, Path]) -> None:
    address, log = live
    page = browser.new_page()
    page.goto(f"{address}/decode")
    page.get_by_role("button", name="Run", exact=True).click(timeout=60_000)
    page.get_by_text("getting ready").wait_for(timeout=30_000)
    page.get_by_role("link", name="About").first.click()
    page.get_by_text("Decoding: run 1 of 2").wait_for(timeout=30_000)
    page.reload()
    page.get_by_text("Decoding: run").wait_for(timeout=30_000)
    page.get_by_role("link", name="Run it live").first.click()
    page.locator(".ds-card").nth(1).wait_for(timeout=60_000)
    page.get_by_text("Identical text").wait_for(timeout=30_000)
    page.reload()
    page.get_by_text("Identical text").wait_for(timeout=30_000)
    page.close()
    assert "Traceback" not in log.read_text()
