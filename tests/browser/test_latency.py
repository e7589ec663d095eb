"""The latency lab in a real browser: the chart stands on the first screen, and points appear as they are measured."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SEEN = 2500  # milliseconds in which the page has looked at the queue, and drawn what it saw


@contextmanager
def halted(address: str) -> Iterator[None]:
    """The process that measures stands still, so that it cannot be done between a look at the page and a click."""
    app = found("-f", f"server.port {address.rsplit(':')[-1]}")
    worker = int(found("-P", app))
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def found(*options: str) -> str:
    return subprocess.run(["pgrep", *options], capture_output=True, text=True, check=True).stdout.split()[0]


def test_points_appear_as_they_are_measured_and_a_stopped_measurement_stays(
    browser: Any, live: tuple[str, Path]
) -> None:
    address, log = live
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(f"{address}/latency?lang=en")
    chart = page.locator(".st-key-chart-latency .js-plotly-plot").first  # a chart further down may be drawn before it
    chart.locator(".scatterlayer .trace").first.wait_for(timeout=120_000)
    box = chart.bounding_box()
    assert box
    assert box["y"] + box["height"] < 720, "the chart stands on the first screen"
    page.get_by_role("button", name="Measure here").click()
    page.get_by_role("button", name="Start", exact=True).click()
    growing = page.get_by_text(re.compile(r"[1-9]\d*% of \d+ timings"))
    over = page.get_by_text(re.compile("^MEASURED"))
    growing.or_(over).first.wait_for(timeout=120_000)  # on a quick machine it may be over before the page looks
    if growing.count():
        with halted(address):
            page.locator(".st-key-chart-latency .scatterlayer .trace .point").first.wait_for(timeout=60_000)
            page.wait_for_timeout(SEEN)
            stop = page.get_by_role("button", name="Stop measuring")
            if stop.count():
                stop.click()
    over.first.wait_for(timeout=60_000)
    assert page.locator('[data-testid="stException"]').count() == 0
    page.close()
    assert "Traceback" not in log.read_text()
