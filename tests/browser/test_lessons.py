"""A lesson in the browser: keys, touch, words that light shapes, questions, links, and the file that plays alone."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pages.lessons.eagle import LESSON
from pages.parts.lecture import Wishes, link
from tests.browser.conftest import Log
from tests.browser.test_app import Visit, choices, moment, picture, settled

IDS = [beat.id for beat in LESSON.beats]
ASKING = next(beat for beat in LESSON.beats if beat.options)
EAGLE = "eagle?lang=en"
PHONE = {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True}


def at(page: Any) -> int:
    """The number of the line that is said, counted from 0."""
    return int(page.locator(".narration .count").inner_text().split()[0]) - 1


def lit(page: Any) -> int:
    return page.locator(".scene .shape.lit").count()


def lighting_word(page: Any) -> Any:
    """Goes on to a line with a word that has shapes on stage, and returns the word."""
    for _ in IDS:
        for word in page.locator(".narration .word").all():
            if page.locator(f".scene .shape.{word.get_attribute('data-light')}").count():
                return word
        page.locator(".stage").press("PageDown")
    raise AssertionError("no word of this lesson lights anything")


def test_page_keys_go_from_line_to_line_and_the_address_names_it(visit: Visit) -> None:
    page = visit(f"{EAGLE}&at={IDS[0]}")
    page.locator(".stage").focus()
    places = []
    for number, name in enumerate(IDS[:4]):
        assert at(page) == number
        places.append(moment(page))
        settled(page, "at", name)
        page.keyboard.press("PageDown")
    assert places == sorted(places)
    page.keyboard.press("PageUp")
    page.keyboard.press("ArrowRight")
    assert moment(page) == places[3] + 1
    page.keyboard.press("PageUp")  # first back to where the line began
    assert moment(page) == places[3] or at(page) == 3
    page.keyboard.press("Home")
    assert moment(page) == 0


def test_a_lesson_told_to_its_end_stays_there(visit: Visit) -> None:
    page = visit(f"{EAGLE}&at={IDS[-2]}")
    page.locator(".turn.later").click()
    assert at(page) == len(IDS) - 1
    assert page.locator(".turn.later").is_disabled()
    end = moment(page)
    page.keyboard.press("PageDown")  # the button that leads no further has kept the keys
    assert moment(page) == end
    settled(page, "at", IDS[-1])
    page.reload()
    page.locator(".stage .scene .shape rect").first.wait_for()
    assert (at(page), moment(page)) == (len(IDS) - 1, end)


def test_a_word_lights_its_shapes_and_a_shape_its_word(visit: Visit) -> None:
    page = visit(f"{EAGLE}&at={IDS[0]}")
    word = lighting_word(page)
    assert lit(page) == 0
    word.hover()
    shapes = lit(page)
    assert shapes >= 1
    page.locator(".narration .title").hover()
    assert lit(page) == 0
    word.focus()
    assert lit(page) == shapes
    page.keyboard.press("Enter")  # kept until the next press
    page.locator(".turn.later").focus()
    assert (lit(page), word.get_attribute("aria-pressed")) == (shapes, "true")
    word.click()
    page.locator(".narration .title").hover()
    page.locator(f".scene .shape.{word.get_attribute('data-light')}").first.hover(force=True)
    assert "lit" in word.get_attribute("class").split()


def test_a_question_keeps_its_answer_until_a_guess(visit: Visit) -> None:
    page = visit(f"{EAGLE}&at={ASKING.id}")
    because = page.locator(".because")
    assert because.inner_text() == ""
    wrong = 0 if ASKING.right != 1 else 1
    page.locator(".option").nth(wrong).click()
    assert len(because.inner_text()) > 10
    assert page.locator(".option").nth(wrong).inner_text().startswith("✕")
    assert page.locator(".option").nth(ASKING.right - 1).inner_text().startswith("✓")
    said = because.inner_text()
    page.locator(".option").nth(ASKING.right - 1).click(force=True)  # one guess a question
    assert because.inner_text() == said
    page.locator(".stage").press("PageDown")
    page.locator(".stage").press("PageUp")
    assert because.inner_text() == said


def test_who_does_not_want_to_guess_is_shown(visit: Visit) -> None:
    page = visit(f"{EAGLE}&at={ASKING.id}")
    page.locator(".reveal").click()
    assert len(page.locator(".because").inner_text()) > 10
    assert page.locator(".option.wrong").count() == 0


def test_with_motion_the_way_is_short_and_a_second_press_does_not_wait(window: Visit) -> None:
    page = window(f"{EAGLE}&at={IDS[0]}", reduced_motion="no-preference")
    still = window(f"{EAGLE}&at={IDS[3]}")
    page.locator(".stage").focus()
    for _ in range(3):
        page.keyboard.press("PageDown")
    page.wait_for_timeout(1300)
    assert (at(page), moment(page)) == (3, moment(still))
    assert picture(page) == picture(still)


def test_an_untouched_lesson_plays_up_to_what_it_says_first(window: Visit) -> None:
    page = window(EAGLE, reduced_motion="no-preference")
    seen = [moment(page)]
    for _ in range(40):
        page.wait_for_timeout(100)
        seen.append(moment(page))
    assert seen == sorted(seen)
    assert at(page) == 0
    page.locator(".stage").press("PageUp")  # would lead back to where the line begins
    assert moment(page) == seen[-1] > 0


def test_a_finger_can_tell_the_whole_lesson(window: Visit) -> None:
    page = window(f"{EAGLE}&at={IDS[0]}", **PHONE)
    for number in range(1, 4):
        page.locator(".turn.later").tap()
        assert at(page) == number
    page.locator(".turn.earlier").tap()
    assert at(page) == 2
    for button in page.locator(".turn, .option, .reveal, .bar button, .keep summary").all():
        if button.is_visible():
            box = button.bounding_box()
            assert min(box["width"], box["height"]) >= 44
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    scene, view = page.locator(".scene").bounding_box(), page.locator(".view").bounding_box()
    assert scene["width"] > view["width"]  # it is wider than the phone
    lit = page.locator(".scene .shape").last.bounding_box()
    assert lit["x"] + lit["width"] / 2 < view["x"] + view["width"]
    assert page.locator(".narration").bounding_box()["y"] > page.locator(".scene").bounding_box()["y"]


def test_presenting_a_lesson_obeys_a_clicker(window: Visit) -> None:
    page = window(f"{EAGLE}&at={IDS[0]}&present=1")
    assert not page.get_by_role("link", name="Race").first.is_visible()
    page.keyboard.press("PageDown")  # nothing was clicked before
    page.keyboard.press("PageDown")
    assert at(page) == 2
    assert page.locator(".narration .title").is_visible()
    assert page.locator(".stage .bar").bounding_box()["y"] < 720 - 44


def test_another_language_goes_on_where_the_lesson_was(visit: Visit) -> None:
    page = visit(EAGLE)
    for _ in range(3):
        page.locator(".turn.later").click()
    settled(page, "at", IDS[3])
    there = moment(page)
    page.get_by_text("中文", exact=True).click()
    page.locator(".turn.later", has_text="下一段").wait_for()
    assert (at_chinese(page), moment(page)) == (3, there)


def test_a_link_for_a_lecture_opens_what_it_promises(visit: Visit) -> None:
    sent = visit(f"{EAGLE}&at={IDS[2]}")
    wishes = Wishes("zh", lock=("trace",), hide=("save", "pages"))
    asked = urlsplit(link("/eagle", choices(sent), wishes))
    received = visit(f"eagle?{asked.query}")
    assert at_chinese(received) == 2
    assert moment(received) == moment(sent)
    assert not received.locator(".st-key-save").is_visible()
    assert not received.locator('[data-testid="stHeader"]').is_visible()
    assert received.locator('[class*="st-key-prompt-"] input').first.is_disabled()


def at_chinese(page: Any) -> int:
    return int(re.findall(r"\d+", page.locator(".narration .count").inner_text())[0]) - 1


@pytest.fixture
def downloads(window: Visit, tmp_path: Path) -> tuple[Any, Path]:
    page = window(f"{EAGLE}&at={IDS[1]}", accept_downloads=True)
    page.get_by_role("button", name="Save", exact=True).click()
    with page.expect_download() as file:
        page.get_by_role("button", name="This page as one file").click()
    file.value.save_as(tmp_path / "alone.html")
    return page, tmp_path


def test_the_file_plays_alone_and_offline(downloads: tuple[Any, Path], browser: Any) -> None:
    page, folder = downloads
    context = browser.new_context(offline=True, reduced_motion="reduce", color_scheme="dark")
    alone = context.new_page()
    log = Log()
    log.listen(alone)
    alone.goto((folder / "alone.html").as_uri())
    assert (at(alone), moment(alone)) == (1, moment(page))
    assert picture(alone) == picture(page)
    alone.locator(".stage").focus()
    alone.keyboard.press("PageDown")
    assert at(alone) == 2
    alone.locator(".turn.later").click()
    assert at(alone) == 3
    assert log.faults == []
    assert len(log.asked) == 1
    context.close()


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_picture_is_saved_as_it_is_seen(visit: Visit, tmp_path: Path, kind: str) -> None:
    page = visit(f"{EAGLE}&at={IDS[3]}")
    page.locator(".keep summary").click()
    with page.expect_download() as file:
        page.locator(".kinds button", has_text=kind.upper()).click()
    file.value.save_as(tmp_path / f"still.{kind}")
    if kind == "png":
        assert (tmp_path / "still.png").read_bytes().startswith(b"\x89PNG")
        return
    root = ET.parse(tmp_path / "still.svg").getroot()
    words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text") if node.text]
    seen = [text for text in page.locator(".scene text").all_text_contents() if text]
    assert words == seen
    assert "var(" not in (tmp_path / "still.svg").read_text("utf-8")


@pytest.mark.parametrize("name", ["why", "dflash", "lossless"])
def test_on_a_phone_a_picture_too_wide_rests_where_it_begins(window: Visit, name: str) -> None:
    page = window(f"{name}?lang=en", viewport={"width": 390, "height": 844})
    view = page.locator(".stage .view").first
    view.wait_for(timeout=60_000)
    page.wait_for_timeout(500)
    assert view.evaluate("(view) => view.scrollWidth > view.clientWidth")
    assert view.evaluate("(view) => view.scrollLeft") <= 6
