"""The server of a class: its rules, its headers, its health, and how it goes. A real server, no browser."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages.parts import routes, serve, source
from pages.parts.hosting import LOCAL, PUBLIC, rules
from spec_core.jobs import Limits
from spec_core.methods import discover
from tests.browser.app import free_port

ROOT = Path(__file__).parents[2]
# As where nothing can be decoded: torch is as good as absent.
WITHOUT_TORCH = (
    "import runpy, sys; sys.modules['torch'] = None; runpy.run_module('pages.parts.serve', run_name='__main__')"
)


@contextmanager
def served(log: Path, command: list[str], **given: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    address = f"http://127.0.0.1:{(port := free_port())}"
    options = ["--server.port", str(port), "--server.fileWatcherType=none", "--server.address", "127.0.0.1"]
    with log.open("w") as out:
        app = subprocess.Popen(
            [sys.executable, *command, *options], cwd=ROOT, env=os.environ | given, stdout=out, stderr=out
        )
        try:
            until_up(address, app)
            yield address, app
        finally:
            app.terminate()
            app.wait(60)


def until_up(address: str, app: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while app.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(address + "/healthz", timeout=5).read()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"no server at {address}")


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    log = tmp_path_factory.mktemp("public") / "log"
    given = {"DRAFTSCOPE_HOSTED": "1", "DRAFTSCOPE_FRAMES": "'self' https://moodle.example.edu"}
    with served(log, ["-m", "pages.parts.serve"], **given) as (address, _):
        yield address, log


def test_a_public_server_says_how_it_is(public: tuple[str, Path]) -> None:
    answer = urllib.request.urlopen(public[0] + "/healthz")
    assert json.load(answer) == {"status": "ok", "live": True, "waiting": 0, "running": 0}
    counts = urllib.request.urlopen(public[0] + "/metrics")
    assert counts.headers["Content-Type"] == routes.OPENMETRICS
    assert counts.read().endswith(b"# EOF\n")


@pytest.mark.parametrize("path", ["/", "/race?prompt=hello", "/healthz", "/_stcore/health"])
def test_every_answer_says_who_may_embed_it_and_that_nothing_comes_from_elsewhere(
    public: tuple[str, Path], path: str
) -> None:
    headers = urllib.request.urlopen(public[0] + path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["frame-ancestors"] == "'self' https://moodle.example.edu"
    assert policy["default-src"] == "'self'"
    assert "http" not in headers["Content-Security-Policy"].replace("https://moodle.example.edu", "")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"


@pytest.mark.parametrize(("origin", "status"), [("", b"101"), ("http://evil.example", b"403"), ("null", b"403")])
def test_a_public_server_listens_to_its_own_pages_only(public: tuple[str, Path], origin: str, status: bytes) -> None:
    """Streamlit would look up its own address outside to judge the others."""
    host = public[0].removeprefix("http://")
    with socket.create_connection(tuple(host.split(":")), timeout=30) as line:  # type: ignore[arg-type]
        line.sendall(
            f"GET /_stcore/stream HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin or public[0]}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            "Sec-WebSocket-Protocol: streamlit\r\n\r\n".encode()
        )
        assert line.recv(64).split()[1] == status


def test_a_server_may_lie_below_a_path(tmp_path: Path) -> None:
    with served(tmp_path / "log", ["-m", "pages.parts.serve"], DRAFTSCOPE_PATH="/draftscope") as (address, _):
        assert json.load(urllib.request.urlopen(address + "/healthz"))["status"] == "ok"
        assert b"<title>" in urllib.request.urlopen(address + "/draftscope/").read()
        assert urllib.request.urlopen(address + "/draftscope/_stcore/health").status == 200
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(address + "/_stcore/health")


def test_the_servers_log_is_json_lines(public: tuple[str, Path]) -> None:
    first = json.loads(public[1].read_text().splitlines()[0])  # and no greeting, which would look up an address outside
    assert (first["event"], first["hosted"], first["live"]) == ("start", True, True)


def test_a_server_told_to_go_goes_in_order(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with served(log, ["-m", "pages.parts.serve"]) as (_, app):
        app.send_signal(signal.SIGTERM)
        app.wait(60)
    assert json.loads(log.read_text().splitlines()[-1]) == {"event": "stop"}
    assert "Traceback" not in log.read_text()


def test_where_no_torch_is_the_server_replays(tmp_path: Path) -> None:
    with served(tmp_path / "log", ["-c", WITHOUT_TORCH]) as (address, _):
        assert json.load(urllib.request.urlopen(address + "/healthz"))["status"] == "ok"
        assert b"<title>" in urllib.request.urlopen(address).read()
    assert "Traceback" not in (tmp_path / "log").read_text()


# The rules


def test_a_public_server_allows_less_than_a_private_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rules() == LOCAL
    monkeypatch.setenv("DRAFTSCOPE_HOSTED", "1")
    assert rules() == PUBLIC
    for name in ("characters", "tokens", "own", "often", "seconds", "trace_mb", "lab_mb", "unpacked_mb"):
        assert getattr(PUBLIC, name) < getattr(LOCAL, name), name
    assert PUBLIC.prompt > 0
    assert PUBLIC.own >= len(discover())  # the race starts with every method
    monkeypatch.setenv("DRAFTSCOPE_QUEUE", "7")
    assert rules().waiting == source.limits().waiting == 7
    monkeypatch.setenv("DRAFTSCOPE_QUEUE", "many")
    assert rules().waiting == PUBLIC.waiting


def test_the_queue_keeps_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTSCOPE_HOSTED", "1")
    assert source.limits() == Limits(waiting=96, own=8, often=60, tokens=128, seconds=60.0)
    assert serve.public()["client.showErrorDetails"] == "none", "no code and no path in a message"
    assert serve.public()["server.maxUploadSize"] == PUBLIC.trace_mb
    monkeypatch.delenv("DRAFTSCOPE_HOSTED")
    assert serve.public() == {}


def test_who_may_embed_is_the_operators_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert routes.headers()["Content-Security-Policy"] == "frame-ancestors *"
    monkeypatch.setenv("DRAFTSCOPE_HOSTED", "1")
    assert routes.headers()["Content-Security-Policy"].endswith("frame-ancestors 'self'")


def test_settings_are_read_as_streamlits_command_reads_them() -> None:
    asked = ["--server.port", "8600", "--server.headless=true", "--server.baseUrlPath", "a=b"]
    assert serve.settings(asked) == {"server.port": 8600, "server.headless": True, "server.baseUrlPath": "a=b"}


def test_a_reader_who_empties_the_cache_takes_nobodys_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import streamlit as st

    before = source.jobs()
    st.cache_resource.clear()
    st.cache_data.clear()
    assert source.jobs() is before


@pytest.mark.parametrize(("backend", "says"), [("mainframe", "local or ray"), ("ray", "requirements-scale.txt")])
def test_a_server_whose_back_end_cannot_be_had_says_so_and_ends(
    monkeypatch: pytest.MonkeyPatch, backend: str, says: str
) -> None:
    monkeypatch.setenv("DRAFTSCOPE_BACKEND", backend)
    monkeypatch.setattr(source, "find_spec", lambda name: None if name == "ray" else object())
    with pytest.raises(SystemExit, match=says):
        serve.main([])
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()  # as `streamlit run` starts it
    at.switch_page("pages/about.py").run()
    assert says in at.exception[0].message


@pytest.mark.parametrize(("backend", "says"), [("local", "one worker process"), ("ray", "They take 3 at once")])
def test_the_about_page_says_where_live_runs_decode(monkeypatch: pytest.MonkeyPatch, backend: str, says: str) -> None:
    monkeypatch.setenv("DRAFTSCOPE_BACKEND", backend)
    monkeypatch.setenv("DRAFTSCOPE_REPLICAS", "3")
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    at.switch_page("pages/about.py").run()
    assert not at.exception
    assert any(says in line.value for line in at.markdown)


def test_a_queue_before_a_cluster_has_a_hand_for_every_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTSCOPE_BACKEND", "ray")
    monkeypatch.setenv("DRAFTSCOPE_REPLICAS", "3")
    made = source.queue()
    assert (len(made.hands), made.worker) == (3, None)


def test_pandas_is_whole_before_plotly_draws() -> None:
    """Plotly looks whether it is loaded, not whether another reader's thread is still at it."""
    code = "import sys; from pages.parts.paper import blank; blank({}); print('pandas' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT).strip() == b"True"
    drawing = [path.name for path in (ROOT / "pages").rglob("*.py") if "go.Figure(" in path.read_text()]
    assert drawing == ["paper.py"]


def test_no_rerun_waits_for_a_collection_of_garbage() -> None:
    code = "from streamlit.config import get_option; print(get_option('runner.postScriptGC'))"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT).strip() == b"False"


def test_all_that_the_image_copies_is_sent_to_the_builder() -> None:
    """.dockerignore leaves out everything it does not name."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    sources = {source.rstrip("/") for part in copied for source in part if not source.startswith("--")}
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sources
    assert all(any(name == source or name.startswith(source + "/") for name in sent) for source in sources)
    assert all((ROOT / source).exists() for source in sources)
