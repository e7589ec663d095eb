"""`make screenshots`: every page in both themes, most in both languages and on a phone, as pictures in docs/screens.

The charts of the latency page become pictures in docs/measurements.
"""

import io
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.app import CHROMIUM, QUIET, ROOT, served

OUT = ROOT / "docs" / "screens"
MEASURED = ROOT / "docs" / "measurements"
DRAWN = ".stage .scene .shape rect, .js-plotly-plot .main-svg, table"
PAGES = {
    "start": "",
    "race": "race?trace=code",
    "step": "step?trace=code&tuning=published&method=eagle3",
    "block": "step?trace=code&tuning=published&method=dflash",
    "latency": "latency",
    "about": "about",
}
LESSONS = {
    "why": "why?at=check",
    "eagle": "eagle?at=back",
    "eagle2": "eagle2?at=rerank",
    "eagle3": "eagle3?at=taps",
    "dflash": "dflash?at=tall",
    "lossless": "lossless?at=luck",
    "family": "family",
}
LOOKS = (("light", 1280, 720, "en"), ("dark", 1280, 720, "en"), ("light", 1280, 720, "zh"), ("dark", 390, 844, "zh"))
CHARTS = ("latency", "split", "heads", "costs-context", "costs-budget", "sweep", "depth", "sure")
TWO = (("light", 1280, 720, "en"), ("dark", 1280, 720, "zh"))  # enough for a lesson
SETTLED = 6000  # milliseconds: charts are drawn after the page, and an opening picture plays to its resting place


def shoot(browser: Any, address: str, pages: dict[str, str], look: tuple[str, int, int, str]) -> None:
    """One look at every page. Motion is reduced, so that pictures stand where they rest."""
    theme, width, height, language = look
    size = {"width": width, "height": height}
    context = browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")
    page = context.new_page()
    for name, path in pages.items():
        page.goto(f"{address}/{path}{'&' if '?' in path else '?'}lang={language}")
        page.locator(DRAWN).first.wait_for(timeout=60_000)
        page.wait_for_timeout(SETTLED)
        save(page.screenshot(), OUT / f"{name}.{theme}.{width}.{language}.webp")
    context.close()


def save(picture: bytes, path: Path) -> None:
    Image.open(io.BytesIO(picture)).save(path, quality=82, method=6)


def charts(browser: Any, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
    page.goto(f"{address}/latency?lang=en")
    for name in CHARTS:
        chart = page.locator(f".st-key-chart-{name}")
        chart.scroll_into_view_if_needed(timeout=60_000)
        chart.locator(".main-svg").first.wait_for(timeout=60_000)
        page.wait_for_timeout(SETTLED / 4)
        save(chart.screenshot(), MEASURED / f"{name}.webp")
    page.close()


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    only = set(sys.argv[1:]) or {*PAGES, *LESSONS, "charts"}
    todo = [(PAGES, look) for look in LOOKS] + [(LESSONS, look) for look in TWO]
    with served() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        for pages, look in todo:
            shoot(browser, address, {name: path for name, path in pages.items() if name in only}, look)
        if "charts" in only:
            charts(browser, address)
        browser.close()
    print(f"pictures of {', '.join(sorted(only))} in docs")


if __name__ == "__main__":
    main()
