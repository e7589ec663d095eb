"""The app in a real browser: the system's Chromium, driven by Playwright. Skipped, with the reason, without one."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.browser.app import CHROMIUM, NO_CHROMIUM, QUIET, ROOT, SHAPE, free_port, served, wait_for
from tests.toy import toy_folder

LESSONS = tuple(
    path.stem for path in sorted((ROOT / "pages/lessons").glob("*.py")) if (ROOT / "pages" / path.name).exists()
)
PICTURED = ("", "race", "step", *LESSONS)  # pages that open with a picture
OWN_PROBES = ("/_stcore/health", "/_stcore/host-config")  # Streamlit's own search for its server below a page's address


@dataclass
class Log:
    """What a page has asked for and what it complained of."""

    asked: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def listen(self, page: Any) -> None:
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self.hear)

    def hear(self, message: Any) -> None:
        if message.type == "error" and not message.location["url"].endswith(OWN_PROBES):
            self.faults.append(message.text)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A freshly started app that nobody has visited."""
    if not list((ROOT / "assets" / "traces").glob("*.jsonl.gz")):
        pytest.skip("no recorded traces are here: run make traces")
    with served() as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        shown = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield shown
        shown.close()


@pytest.fixture(scope="module")
def desktop(browser: Any) -> Iterator[Any]:
    """One window for tests that need nothing special: what it has loaded once, it keeps. Nothing moves by itself."""
    context = browser.new_context(viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
    yield context
    context.close()


def opened(context: Any, address: str, path: str) -> Any:
    """A new page whose picture, or else whose title, is drawn; `page.log` is its Log."""
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.log = Log()
    page.log.listen(page)
    page.goto(f"{address}/{path}")
    page.locator(SHAPE if path.split("?")[0] in PICTURED else "h1").first.wait_for()
    return page


@pytest.fixture
def visit(desktop: Any, server: str) -> Iterator[Callable[..., Any]]:
    """visit(path) → a page in the shared window."""
    pages: list[Any] = []

    def go(path: str) -> Any:
        pages.append(opened(desktop, server, path))
        return pages[-1]

    yield go
    for page in pages:
        page.close()


@pytest.fixture
def window(browser: Any, server: str) -> Iterator[Callable[..., Any]]:
    """window(path, **options of a browser context) → a page in a window of its own."""
    contexts: list[Any] = []

    def go(path: str, **options: Any) -> Any:
        given = {"viewport": {"width": 1280, "height": 720}, "reduced_motion": "reduce"} | options
        contexts.append(browser.new_context(**given))
        return opened(contexts[-1], server, path)

    yield go
    for context in contexts:
        context.close()


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
