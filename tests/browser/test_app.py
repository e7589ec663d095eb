"""What only a browser can show: links on a fresh server, keys, pointing, no outside requests, a phone's width."""

from collections.abc import Callable
from typing import Any

Visit = Callable[..., Any]


def moment(page: Any) -> int:
    return int(page.locator(".stage .scrub").input_value())


def test_a_link_works_as_the_first_visit_of_a_server(visit: Visit) -> None:
    page = visit("step?lang=zh&method=eagle3&tuning=published")
    assert page.get_by_text("逐步看一次解码").count() == 1
    assert page.get_by_text("赛跑", exact=True).count() >= 1


def test_keys_move_by_one_and_by_step(visit: Visit) -> None:
    page = visit("step?lang=en&at=0")
    page.locator(".stage").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert moment(page) == 3
    page.keyboard.press("ArrowLeft")
    assert moment(page) == 2
    page.keyboard.press("Home")
    page.keyboard.press("PageDown")
    stop = moment(page)
    page.keyboard.press("PageDown")
    assert moment(page) > stop > 0
    page.keyboard.press("End")
    assert moment(page) == int(page.locator(".stage .scrub").get_attribute("max"))


def test_the_moment_goes_into_the_address_and_a_reload_returns_to_it(visit: Visit) -> None:
    page = visit("step?lang=en&at=0")
    page.locator(".stage").focus()
    page.keyboard.press("PageDown")
    page.wait_for_function("() => new URL(location.href).searchParams.get('at') !== '0'", timeout=20_000)
    there = moment(page)
    page.reload()
    page.locator(".stage .scene .shape rect").first.wait_for(timeout=60_000)
    assert moment(page) == there


def test_pointing_at_a_guess_shows_p_and_q(visit: Visit) -> None:
    page = visit("step?lang=en&method=eagle3&tuning=published")
    page.locator(".scene .node").nth(3).hover()
    assert page.locator(".facts .pairs tr").count() > 1
    assert "q" in page.locator(".facts .about").inner_text()


def test_nothing_is_asked_of_the_outside(visit: Visit, server: str) -> None:
    page = visit("race?lang=en")
    assert not [url for url in page.asked if not url.startswith((server, "data:", "blob:", "ws:"))]


def test_nothing_hangs_out_on_a_phone(visit: Visit) -> None:
    page = visit("step?lang=en", width=390)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
