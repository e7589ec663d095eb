"""The static site: every link leads somewhere, nothing comes from outside, and both languages have the same pages."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import streamlit as st

from pages.parts import exercises, recorded, relatives, site
from pages.parts.leaf import Place
from pages.parts.text import catalogue
from pages.pictures import lanes
from spec_core.methods import discover

APP = "https://app.example/draft"
RACE = Place("race", (("trace", "list"), ("tuning", "device"), ("clock", "passes")))
Tag = dict[str, str]


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, Tag]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))


def links(path: Path) -> list[str]:
    return [at["href"] for tag, at in Tags(path.read_text("utf-8")).found if tag == "a"]


@pytest.fixture(scope="module")
def out(shipped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small site: two prompts race, one of them can be stepped through."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded, "FOLDER", shipped)
        st.cache_data.clear()
        count = site.build(folder, lambda: site.places(site.ORDER, ["story", "list"], ["story"]), "")
    assert count == len(list(folder.rglob("*.html")))
    return folder


@pytest.fixture
def pages(out: Path) -> list[Path]:
    return sorted(out.rglob("*.html"))


def test_both_languages_have_every_page(pages: list[Path], out: Path) -> None:
    by_language = {name: {path.name for path in pages if path.parent.name == name} for name in ("en", "zh")}
    assert by_language["en"] == by_language["zh"]
    races = [name for name in by_language["en"] if name.startswith("race-")]
    assert len(races) == 2 * 2 * len(lanes.CLOCKS)
    assert {f"step-story-published-{key}.html" for key in discover()} <= by_language["en"]
    for name in ("en", "zh"):
        assert catalogue(name)["site.lead"][:40] in (out / name / "index.html").read_text("utf-8")


def test_every_link_is_relative_and_leads_to_a_page(pages: list[Path]) -> None:
    for path in pages:
        assert links(path)
        for href in links(path):
            if path.stem == "family" and href.startswith("https://"):  # the papers; nothing is loaded from them
                continue
            assert (path.parent / href.split("#")[0]).resolve() in pages, f"{path.name}: {href}"


def test_every_page_can_be_reached_from_the_first(pages: list[Path], out: Path) -> None:
    seen, waiting = set(), [out / "index.html"]
    while waiting:
        path = waiting.pop()
        seen.add(path)
        inside = [(path.parent / href.split("#")[0]).resolve() for href in links(path) if "://" not in href]
        waiting += [there for there in inside if there not in seen]
    assert seen == set(pages)


def test_nothing_is_loaded_from_anywhere(pages: list[Path]) -> None:
    for path in pages:
        text = path.read_text("utf-8")
        for tag, at in Tags(text).found:
            assert tag not in ("link", "img", "iframe", "object")
            assert "src" not in at
        assert "default-src 'none'" in text
        assert not re.search(r"@import|\bimport\s|\bfetch\(|url\((?!#)", text.replace("\\u003c", "<"))


def test_an_app_that_is_named_is_linked_at_the_same_choices(tmp_path: Path) -> None:
    site.build(tmp_path, lambda: [RACE], APP)
    out = [href for href in links(tmp_path / "zh" / RACE.file) if href.startswith("http")]
    assert out == [f"{APP}/race?trace=list&tuning=device&clock=passes&lang=zh"]


def test_without_an_app_a_page_says_where_it_would_be() -> None:
    with site.spoken("en"):
        assert "<code>/race?trace=a&amp;lang=en</code>" in site.leaf.live(Place("race", (("trace", "a"),)), "")


def test_the_choices_of_the_app_are_links_and_what_is_shown_is_none(out: Path) -> None:
    path = out / "en" / "race-story-device-ms.html"
    there = [href for href in links(path) if href.startswith("race-story-device-")]
    assert sorted(set(there)) == [f"race-story-device-{clock}.html" for clock in ("model", "ms", "passes")]
    assert there.count("race-story-device-ms.html") == 1  # the name of the page in the navigation, and no choice
    text = path.read_text("utf-8")
    assert f"<b>{catalogue('en')['clock.ms']}</b>" in text


def test_what_a_picture_shows_stands_there_as_text(out: Path) -> None:
    race = (out / "zh" / "race-story-device-ms.html").read_text("utf-8")
    assert race.count("<tr>") == 1 + len(discover())
    step = (out / "en" / "step-story-published-eagle3.html").read_text("utf-8")
    assert step.count("<li><b>") > 10


def test_ways_into_the_app_become_ways_within_the_site() -> None:
    pages = [Place("eagle"), RACE, Place("race", (("trace", "code"), ("tuning", "published"), ("clock", "ms")))]
    with site.spoken("en"):
        assert relatives.way("eagle?at=shift&lang=en", "x", pages, APP) == '<a data-stay href="eagle.html#shift">x</a>'
        assert "race-code-published-ms.html" in relatives.way("race?tuning=published&lang=en", "x", pages, APP)
        assert relatives.way("latency?lang=en", "x", pages, APP) == f'<a href="{APP}/latency?lang=en">x</a>'
        assert relatives.way("latency?lang=en", "x", pages, "") == "x"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_tasks_stand_there_with_solutions_folded_and_nothing_left_of_the_markup(language: str, out: Path) -> None:
    text = (out / language / "tasks.html").read_text("utf-8")
    tasks = text.count("<section><h2>")
    assert tasks >= 8
    assert text.count("<details><summary>") == text.count("</details></section>") == tasks
    shown = re.sub(r"<style>.*?</style>|<[^>]+>", "", text, flags=re.DOTALL)
    assert not re.search(r"\*\*|\]\(|`|localhost|###", shown)


def test_a_task_links_within_the_site_where_it_can() -> None:
    pages = [Place("step", (("trace", "code"), ("tuning", "published"), ("method", "eagle3"))), Place("eagle")]
    with site.spoken("en"):
        first = exercises.task(exercises.texts()[0], pages, "")
    assert 'href="step-code-published-eagle3.html"' in first


def test_every_lesson_leads_to_the_next() -> None:
    lessons = [Place(key) for key in ("why", "eagle", "family")]
    with site.spoken("en"):
        assert 'href="family.html"' in site.leaf.onward(lessons[1], lessons)
        assert site.leaf.onward(lessons[2], lessons) == ""


def test_building_leaves_no_language_behind(pages: list[Path]) -> None:
    assert "lang" not in st.session_state


def test_a_lesson_nobody_wrote_or_recorded_is_left_out() -> None:
    with site.spoken("en"):
        assert site.told("no such lesson") is None
        assert site.places(["no such lesson"], [], []) == [site.leaf.TASKS]
