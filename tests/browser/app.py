"""What tests and measurements of the app in a browser share: where Chromium is, and a server of one's own."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
NO_CHROMIUM = "no Chromium is here: on Debian, apt install chromium fonts-noto-cjk; or name one in CHROMIUM"
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync")
SHAPE = ".stage .scene .shape rect"  # once it is there, the picture is


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


@contextmanager
def served() -> Iterator[str]:
    """The address of a freshly started app that nobody has visited, as `make run` starts it."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    options = ["--server.port", str(port), "--server.headless", "true", "--server.fileWatcherType", "none"]
    command = [sys.executable, "-m", "pages.parts.serve", *options]
    app = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(address)
        yield address
    finally:
        app.terminate()
        app.wait(20)
