"""`make screenshots`: every page in both themes and languages and on a phone, as pictures in docs/screens."""

import io
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.app import CHROMIUM, QUIET, ROOT, served

OUT = ROOT / "docs" / "screens"
DRAWN = ".stage .scene .shape rect, .js-plotly-plot .main-svg, table"
PAGES = {
    "start": "",
    "race": "race?trace=code",
    "step": "step?trace=code&tuning=published&method=eagle3",
    "block": "step?trace=code&tuning=published&method=dflash",
    "latency": "latency",
    "about": "about",
}
LOOKS = (("light", 1280, 720, "en"), ("dark", 1280, 720, "en"), ("light", 1280, 720, "zh"), ("dark", 390, 844, "zh"))
SETTLED = 6000  # milliseconds: charts are drawn after the page, and an opening picture plays to its resting place


def shoot(browser: Any, address: str, theme: str, width: int, height: int, language: str) -> None:
    """One look at every page. Motion is reduced, so that pictures stand where they rest."""
    size = {"width": width, "height": height}
    context = browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")
    page = context.new_page()
    for name, path in PAGES.items():
        page.goto(f"{address}/{path}{'&' if '?' in path else '?'}lang={language}")
        page.locator(DRAWN).first.wait_for(timeout=60_000)
        page.wait_for_timeout(SETTLED)
        picture = Image.open(io.BytesIO(page.screenshot()))
        picture.save(OUT / f"{name}.{theme}.{width}.{language}.webp", quality=82, method=6)
    context.close()


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    only = set(sys.argv[1:])
    for name in list(PAGES):
        if only and name not in only:
            del PAGES[name]
    with served() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        for look in LOOKS:
            shoot(browser, address, *look)
        browser.close()
    print(f"{len(PAGES) * len(LOOKS)} pictures in {Path(OUT).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
