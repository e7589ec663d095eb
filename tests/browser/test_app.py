"""What only a browser can show: links on a fresh server, keys, clicks, touch, motion, and what a link brings back."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pages.parts import colours

Visit = Callable[..., Any]
STEP = "step?lang=en&trace=chat&method=eagle3&tuning=device"
# Every shape by name: its look, its place and its words. Groups around shapes come and go and mean nothing.
PICTURE = """() => {
  const find = (root) => root.querySelector(".stage .scene") ??
    [...root.querySelectorAll("*")].map((e) => e.shadowRoot && find(e.shadowRoot)).find(Boolean);
  return Object.fromEntries([...find(document).querySelectorAll("[data-id]")].map((shape) =>
    [shape.dataset.id, [shape.getAttribute("class").trim(), shape.style.transform, shape.textContent]]));
}"""


def moment(page: Any) -> int:
    return int(page.locator(".stage .scrub").input_value())


def last(page: Any) -> int:
    return int(page.locator(".stage .scrub").get_attribute("max"))


def picture(page: Any) -> dict[str, list[str]]:
    return page.evaluate(PICTURE)


def choices(page: Any) -> dict[str, str]:
    """What stands in the address."""
    return {key: values[0] for key, values in parse_qs(urlsplit(page.url).query).items()}


def settled(page: Any, key: str, value: str) -> None:
    page.wait_for_function(f"() => new URL(location.href).searchParams.get('{key}') === '{value}'")


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
    page.keyboard.press("PageUp")
    assert moment(page) == stop
    page.keyboard.press("End")
    assert moment(page) == last(page)


def test_keys_still_move_by_one_after_visits_to_other_pages(visit: Visit) -> None:
    page = visit("race?lang=en")
    for name, words in (("Step through", "Step through one decode"), ("Race", "Same prompt"), ("Step through", "Step")):
        page.get_by_role("link", name=name).first.click()
        page.get_by_role("heading", name=words).first.wait_for()
        page.locator(".stage .scene .shape rect").first.wait_for()
    page.locator(".stage .scene .node").first.wait_for()
    page.locator(".stage").press("Home")
    for place in (1, 2, 3):
        page.keyboard.press("ArrowRight")
        assert moment(page) == place
    page.locator(".stage .next").click()
    assert moment(page) == 4


def test_stepping_through_ends_where_jumping_does(visit: Visit) -> None:
    page = visit(f"{STEP}&at=0")
    stage = page.locator(".stage")
    stage.press("End")
    jumped = picture(page)
    stage.press("Home")
    beginning = picture(page)
    for _ in range(last(page)):
        page.keyboard.press("ArrowRight")
    assert picture(page) == jumped != beginning
    for _ in range(last(page)):
        page.keyboard.press("ArrowLeft")
    assert picture(page) == beginning


def test_playing_ends_where_jumping_does_and_plays_again_the_same(visit: Visit) -> None:
    page = visit("?lang=en")
    stage = page.locator(".stage")
    stage.press("End")
    jumped = picture(page)
    page.locator(".stage .pace").select_option("4")
    for _ in range(2):
        stage.press("End")
        page.locator(".stage .play").click()  # at the end it starts over
        page.wait_for_function("(scrub) => +scrub.value < +scrub.max", arg=page.locator(".scrub").element_handle())
        page.wait_for_function("(scrub) => scrub.value === scrub.max", arg=page.locator(".scrub").element_handle())
        assert picture(page) == jumped


def test_the_moment_goes_into_the_address_and_a_reload_returns_to_it(visit: Visit) -> None:
    page = visit("step?lang=en&at=0")
    page.locator(".stage").focus()
    page.keyboard.press("PageDown")
    there = moment(page)
    settled(page, "at", str(there))
    page.reload()
    page.locator(".stage .scene .shape rect").first.wait_for()
    assert moment(page) == there


def test_pointing_at_a_guess_shows_p_and_q_and_a_click_keeps_them(visit: Visit) -> None:
    page = visit("step?lang=en&method=eagle3&tuning=published")
    page.locator(".scene .node").nth(3).hover()
    assert page.locator(".facts .pairs tr").count() > 1
    about = page.locator(".facts .about").inner_text()
    assert "q" in about
    page.locator(".scene .node").nth(3).click()
    page.locator(".stage .headline").hover()
    assert page.locator(".facts .about").inner_text() == about


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("race", {"trace": "code", "tuning": "published", "clock": "passes", "lang": "zh"}),
        ("step", {"trace": "maths", "method": "eagle2", "tuning": "device", "at": "9", "lang": "zh"}),
    ],
)
def test_a_link_brings_back_what_its_sender_saw(visit: Visit, path: str, asked: dict[str, str]) -> None:
    query = "&".join(f"{key}={value}" for key, value in asked.items())
    sent = visit(f"{path}?{query}")
    assert asked.items() <= choices(sent).items()
    assert urlsplit(sent.url).path == f"/{path}"
    received = visit(sent.url.split("/", 3)[3])
    assert choices(received) == choices(sent)
    assert moment(received) == moment(sent)
    assert picture(received) == picture(sent)


def test_choices_made_by_hand_are_in_the_link(visit: Visit) -> None:
    page = visit("race?lang=en&trace=chat")
    page.get_by_role("radio", name="target passes").or_(page.get_by_role("button", name="target passes")).first.click()
    settled(page, "clock", "passes")
    page.get_by_text("中文", exact=True).click()
    settled(page, "lang", "zh")
    page.get_by_role("heading", name="同一").or_(page.get_by_role("heading", level=1)).first.wait_for()
    received = visit(page.url.split("/", 3)[3])
    assert choices(received) == choices(page)
    assert picture(received) == picture(page)


def test_words_can_be_read_when_the_theme_changes_under_them(window: Visit) -> None:
    page = window(f"{STEP}", color_scheme="light")
    before = chip_contrast(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("() => getComputedStyle(document.querySelector('.stApp')).colorScheme === 'dark'")
    assert min(before, chip_contrast(page)) >= colours.TEXT


def chip_contrast(page: Any) -> float:
    """Of a drafted token's words with what is behind them."""
    chip = page.locator(".scene .chip.drafted").first
    fills = [chip.locator(tag).evaluate("(node) => getComputedStyle(node).fill") for tag in ("rect", "text.label")]
    return colours.contrast(*("#" + bytes(map(int, re.findall(r"\d+", fill)[:3])).hex() for fill in fills))


def test_with_reduced_motion_nothing_moves_by_itself(window: Visit) -> None:
    page = window("race?lang=en", reduced_motion="reduce")
    assert moment(page) == last(page)
    page.wait_for_timeout(600)
    assert moment(page) == last(page)
    front = page.locator(".scene .front .shape").first
    assert front.evaluate("(shape) => getComputedStyle(shape).transitionDuration") == "0s"
    page.locator(".stage").press("Home")
    page.keyboard.press("ArrowRight")
    assert page.locator(".scene .fresh").evaluate_all("(all) => all.every((e) => !e.getAnimations().length)")


def test_an_untouched_picture_shows_how_it_moves(window: Visit) -> None:
    page = window("race?lang=en", reduced_motion="no-preference")
    seen = [moment(page)]
    for _ in range(20):
        page.wait_for_timeout(100)
        seen.append(moment(page))
    assert seen == sorted(seen)
    assert len(set(seen)) > 2
    page.locator(".stage").press("ArrowLeft")  # a reader's hand stops it
    stopped = moment(page)
    page.wait_for_timeout(400)
    assert moment(page) == stopped


def test_a_phone_can_tap_through(window: Visit) -> None:
    phone = {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True}
    page = window(f"{STEP}&at=0", **phone)
    for place in (1, 2, 3):
        page.locator(".stage .next").tap()
        assert moment(page) == place
    page.locator(".stage .back").tap()
    assert moment(page) == 2
    page.locator(".stage .last").tap()
    assert moment(page) > 3
    page.locator(".scene .node").nth(1).tap()
    assert page.locator(".facts .about").count() == 1
    for button in page.locator(".stage .bar > button, .stage .keep summary").all():
        box = button.bounding_box()
        assert min(box["width"], box["height"]) >= 44


def test_on_a_phone_the_names_of_the_lanes_stay_when_the_race_is_scrolled(window: Visit) -> None:
    page = window("race?lang=en", viewport={"width": 390, "height": 780}, reduced_motion="reduce")
    page.locator(".stage .last").click()
    view, bar = page.locator(".stage .view"), page.locator(".scene .over .time").first
    before = bar.bounding_box()["x"]
    view.evaluate("(view) => view.scrollTo(view.scrollWidth, 0)")
    page.locator(".scene .margin.slid").wait_for(state="attached")
    assert bar.bounding_box()["x"] < before
    titles = page.locator(".scene .margin .title").all()
    assert len(titles) == 7
    for title in titles:
        box = title.bounding_box()
        assert 0 <= box["x"] - view.bounding_box()["x"] < 2
    view.evaluate("(view) => view.scrollTo(0, 0)")
    page.locator(".scene .margin:not(.slid)").wait_for(state="attached")
    assert 0 <= titles[0].bounding_box()["x"] - view.bounding_box()["x"] < 2


def test_a_run_one_comes_back_to_stands_where_it_was_left(window: Visit) -> None:
    page = window(f"{STEP}&at=3")
    page.locator(".stage").press("ArrowRight")
    page.wait_for_function("() => new URLSearchParams(location.search).get('at') === '4'")
    headline = page.locator(".stage .headline").inner_text()
    page.get_by_role("radio", name="DFlash").click()
    page.wait_for_function("() => new URLSearchParams(location.search).get('method') === 'dflash'")
    page.wait_for_timeout(1000)
    page.get_by_role("radio", name="EAGLE-3").click()
    page.wait_for_function("() => new URLSearchParams(location.search).get('method') === 'eagle3'")
    page.wait_for_timeout(1500)  # it would play by now
    assert moment(page) == 4
    assert page.locator(".stage .headline").inner_text() == headline


def test_a_walk_through_a_run_is_one_step_of_the_browsers_history(window: Visit) -> None:
    page = window(f"{STEP}&at=0")
    before = page.evaluate("() => history.length")
    for place in range(1, 6):
        page.locator(".stage").press("ArrowRight")
        page.wait_for_function(f"() => new URLSearchParams(location.search).get('at') === '{place}'")
    page.wait_for_timeout(1500)  # the page has answered
    assert page.evaluate("() => history.length") == before
    assert parse_qs(urlsplit(page.url).query)["at"] == ["5"]


def test_the_keyboard_reaches_what_the_pointer_does(window: Visit) -> None:
    page = window(f"{STEP}&at=20")
    stage = page.locator(".stage")
    stage.press(".")
    first = page.locator(".facts .about").inner_text()
    pinned = page.locator(".scene .pinned").get_attribute("data-id")
    stage.press(".")
    assert page.locator(".scene .pinned").get_attribute("data-id") != pinned
    stage.press(",")
    assert page.locator(".facts .about").inner_text() == first
    place = moment(page)
    stage.press("Alt+ArrowLeft")  # the browser's own
    assert moment(page) == place


@pytest.mark.parametrize("page_name", ["race", "step", "eagle"])
@pytest.mark.parametrize("width", [1280, 390])
def test_presenting_gives_the_picture_the_width_there_is(window: Visit, page_name: str, width: int) -> None:
    page = window(f"{page_name}?lang=en&present=1", viewport={"width": width, "height": 720})
    stage, view = (page.locator(name).first.bounding_box() for name in (".stage", ".stage .view"))
    beside = page_name != "race" and width > 760  # a panel at its side
    assert view["width"] > (0.55 if beside else 0.97) * stage["width"]


def test_of_two_pictures_the_lessons_has_the_clicker(window: Visit) -> None:
    page = window("dflash?lang=en&at=blanks&present=1")
    page.locator(".stage").nth(1).wait_for(timeout=60_000)
    page.wait_for_timeout(1500)
    before = [moment_of(page, i) for i in (0, 1)]
    page.keyboard.press("PageDown")
    page.wait_for_timeout(300)
    after = [moment_of(page, i) for i in (0, 1)]
    assert after[0] > before[0]
    assert after[1] == before[1]


def moment_of(page: Any, number: int) -> int:
    return int(page.locator(".stage .scrub").nth(number).input_value())


def test_presenting_begins_with_a_button_and_ends_with_escape(window: Visit) -> None:
    page = window(STEP)
    page.get_by_role("button", name="Present").click()
    page.get_by_role("link", name="Race").first.wait_for(state="hidden", timeout=20_000)
    page.wait_for_timeout(1500)
    before = moment(page)
    page.keyboard.press("PageDown")  # nothing was clicked since
    page.wait_for_timeout(300)
    assert moment(page) != before
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Race").first.wait_for(state="visible", timeout=20_000)
    assert "present" not in page.url


def test_presenting_shows_the_picture_and_obeys_a_clicker(window: Visit) -> None:
    page = window(f"{STEP}&at=0&present=1")
    assert not page.get_by_role("link", name="Race").first.is_visible()
    assert not page.get_by_text("Prompt", exact=True).first.is_visible()
    page.keyboard.press("PageDown")  # nothing was clicked before
    assert moment(page) > 0
    assert page.locator(".stage .scene").bounding_box()["y"] < 200
