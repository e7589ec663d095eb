"""The app in a real browser: Debian's Chromium driven by Playwright. Skipped, with the reason, where one is missing."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(address: str, seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(address + "/_stcore/health", timeout=1).read()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError(f"no server at {address}")


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A freshly started app that nobody has visited."""
    if not list((ROOT / "assets" / "traces").glob("*.jsonl.gz")):
        pytest.skip("no recorded traces are here: run make traces")
    address = f"http://127.0.0.1:{(port := free_port())}"
    options = ["--server.port", str(port), "--server.headless", "true", "--server.fileWatcherType", "none"]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", *options]
    app = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(address)
    yield address
    app.terminate()
    app.wait(10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is here: on Debian, apt install chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        shown = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield shown
        shown.close()


@pytest.fixture
def visit(browser: Any, server: str) -> Iterator[Callable[..., Any]]:
    """visit(path, width=, motion=) → a page whose picture is drawn."""
    opened: list[Any] = []

    def go(path: str, width: int = 1280, motion: str = "reduce") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 720}, reduced_motion=motion)
        opened.append(context)
        page = context.new_page()
        page.asked = []
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(f"{server}/{path}")
        page.locator(".stage .scene .shape rect").first.wait_for(timeout=60_000)
        return page

    yield go
    for context in opened:
        context.close()
