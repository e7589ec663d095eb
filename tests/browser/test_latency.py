"""The latency lab in a real browser: the chart stands on the first screen, and points appear as they are measured."""

import re
from pathlib import Path
from typing import Any


def test_points_appear_as_they_are_measured_and_a_stopped_measurement_stays(
    browser: Any, live: tuple[str, Path]
) -> None:
    address, log = live
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(f"{address}/latency?lang=en")
    chart = page.locator(".st-key-latency .js-plotly-plot").first  # a chart further down may be drawn before it
    chart.locator(".scatterlayer .trace").first.wait_for(timeout=120_000)
    box = chart.bounding_box()
    assert box
    assert box["y"] + box["height"] < 720, "the chart stands on the first screen"
    page.get_by_role("button", name="Measure here").click()
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_text(re.compile(r"\d+% of \d+ timings")).wait_for(timeout=120_000)
    page.locator(".st-key-latency .scatterlayer .trace .point").first.wait_for(timeout=60_000)
    stop = page.get_by_role("button", name="Stop measuring")
    if stop.count():  # a quick machine may be done by itself
        stop.click()
    page.get_by_text(re.compile("^MEASURED")).first.wait_for(timeout=60_000)
    assert page.locator('[data-testid="stException"]').count() == 0
    page.close()
    assert "Traceback" not in log.read_text()
