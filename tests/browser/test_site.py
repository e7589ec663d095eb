"""The static site in a browser: from a disk with the network off, and below a path of a plain web server."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pages.parts import recorded, site
from pages.parts.leaf import Place
from tests.browser.conftest import Log

LESSON, RACE, STEP = "eagle.html", "race-code-device-ms.html", "step-code-published-dflash.html"
FAMILY = "family.html"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of the pages that `make site` writes."""
    if "code" not in recorded.prompts():
        pytest.skip("no recorded traces are here: run make traces")
    out = tmp_path_factory.mktemp("course") / "site"
    site.build(out, some, "")
    return out


def some() -> list[Place]:
    return [
        one for one in site.places(["eagle", "family"], ["code"], ["code"]) if one.file in (LESSON, RACE, STEP, FAMILY)
    ]


@pytest.fixture
def offline(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 720}, reduced_motion="reduce", offline=True)
    yield context
    context.close()


def opened(context: Any, address: str) -> Any:
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.log = Log()
    page.log.listen(page)
    page.goto(address)
    return page


def drawn(page: Any) -> int:
    page.locator(".stage .scene .shape rect").first.wait_for()
    return page.locator(".stage .scene .shape").count()


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", [LESSON, RACE, STEP])
def test_a_page_plays_from_a_disk_without_a_network(offline: Any, folder: Path, name: str, language: str) -> None:
    page = opened(offline, (folder / language / name).as_uri())
    assert drawn(page) > 10
    assert page.log.faults == []
    assert [url for url in page.log.asked if not url.startswith(folder.as_uri())] == []


def test_the_first_page_leads_on(offline: Any, folder: Path) -> None:
    page = opened(offline, (folder / "index.html").as_uri())
    page.wait_for_url("**/en/index.html")
    page.locator(".doors a").first.click()
    page.wait_for_url(f"**/{LESSON}")
    assert drawn(page)


def test_a_clicker_turns_the_pages_and_the_moment_stands_in_the_address(offline: Any, folder: Path) -> None:
    page = opened(offline, (folder / "en" / LESSON).as_uri() + "?present=1")
    drawn(page)
    assert not page.locator(".pages").is_visible()
    title = page.locator(".narration .title").inner_text()
    page.keyboard.press("PageDown")
    page.wait_for_url("**#feature")
    assert page.locator(".narration .title").inner_text() != title
    again = opened(offline, page.url)
    assert again.locator(".narration .title").inner_text() == page.locator(".narration .title").inner_text()


def test_the_other_language_opens_at_the_same_moment(offline: Any, folder: Path) -> None:
    page = opened(offline, (folder / "en" / LESSON).as_uri() + "#shift")
    assert page.locator(".narration .count").inner_text().startswith("4")
    page.locator(".tongue").click()
    page.wait_for_url(f"**/zh/{LESSON}#shift")
    assert "错开" in page.locator(".narration .title").inner_text()


def test_the_family_leads_to_lessons_and_steps_of_the_site(offline: Any, folder: Path) -> None:
    page = opened(offline, (folder / "zh" / FAMILY).as_uri())
    page.locator(f".ds-kin a[href='{STEP}']").click()
    page.wait_for_url(f"**/{STEP}*")
    assert drawn(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_reader(browser: Any, folder: Path, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce", offline=True)
    page = opened(context, (folder / "en" / RACE).as_uri())
    drawn(page)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(251, 248, 241)", "dark": "rgb(27, 26, 24)"}[scheme]
    context.close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_it_works_below_a_path_of_any_server(browser: Any, folder: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder.parent)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/site"
    context = browser.new_context(reduced_motion="reduce", locale="zh-CN")
    try:
        page = opened(context, f"{base}/index.html")
        page.wait_for_url(f"{base}/zh/index.html")
        page.locator(".pages a").nth(1).click()
        assert drawn(page)
        assert [url for url in page.log.asked if not url.startswith((base, base.replace("/site", "/favicon")))] == []
    finally:
        context.close()
        server.shutdown()
        server.server_close()
