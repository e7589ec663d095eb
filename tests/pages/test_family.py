"""The family page: everybody stands somewhere and has a source, and every way into the app leads somewhere."""

import html
import importlib
import re
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest

from pages.lessons.lesson import Lesson
from pages.parts import family, source
from pages.parts.text import catalogue
from tests.pages.conftest import open_page

ROOT = Path(__file__).parents[2]


def html_of(language: str) -> str:
    at = open_page("family", language)
    assert not at.exception
    assert at.title[0].value == catalogue(language)["family.title"]
    return "".join(block.proto.body for block in at.get("html"))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_everybody_is_on_the_map_once_and_has_a_card_with_a_source(language: str) -> None:
    page = html_of(language)
    for member in family.MEMBERS:
        assert page.count(f">{member.name}</li>") == 1
        assert page.count(f">{member.name}</h2>") == 1
        assert f'href="{member.address}"' in page
        assert catalogue(language)[f"family.{member.key}"] in page.replace("&#x27;", "'")


def test_a_source_is_a_paper_or_a_page() -> None:
    for member in family.MEMBERS:
        assert bool(member.paper) != bool(member.link)
        assert not member.paper or re.fullmatch(r"\d{4}\.\d{5}", member.paper)


def test_papers_are_those_the_methods_name() -> None:
    for member in family.MEMBERS:
        if member.method and member.paper:
            assert member.paper in source.methods()[member.method].paper


def test_every_method_that_drafts_here_belongs_to_the_family() -> None:
    known = {member.method for member in family.MEMBERS if member.method}
    assert known == set(list(source.methods())[1:])  # the first drafts nothing


def test_a_way_keeps_what_a_lecturer_asked_for_and_what_is_running() -> None:
    at = open_page("family", "zh", lock="trace", present="1", job="3", at="7")
    links = re.findall(r'href="([^"]+)" target="_self"', "".join(block.proto.body for block in at.get("html")))
    assert links
    for link in links:
        asked = parse_qs(urlparse(html.unescape(link)).query)
        assert {"lang": ["zh"], "lock": ["trace"], "present": ["1"], "job": ["3"]}.items() <= asked.items()


def ways() -> list[str]:
    return [family.known(way) for pair in family.ROWS.values() for way in pair]


@pytest.mark.parametrize("way", ways())
def test_a_way_leads_to_a_page_and_to_a_moment_that_is_there(way: str) -> None:
    parts = urlparse(way)
    assert (ROOT / "pages" / f"{parts.path}.py").exists()
    asked = parse_qs(parts.query)
    if "at" in asked:
        told: Lesson = importlib.import_module(f"pages.lessons.{parts.path}").LESSON
        assert asked["at"][0] in [beat.id for beat in told.beats]
    if "method" in asked:
        assert asked["method"][0] in source.methods()


def test_a_missing_lesson_is_replaced_by_the_step_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(family, "PAGES", tmp_path)
    assert family.known("eagle3") == "step?tuning=published&method=eagle3"


def test_ways_keep_the_language() -> None:
    for language in ("en", "zh"):
        found = re.findall(r'href="([^"]+)" target="_self"', html_of(language))
        assert len(found) >= 2 * len(family.ROWS)
        assert all(f"lang={language}" in link for link in found)


def test_words_stand_in_both_languages_side_by_side() -> None:
    at = open_page("family", "zh")
    table = at.table[0].value
    assert len(table) == len(family.WORDS)
    english, chinese = list(table["English"]), list(table["中文"])
    assert len(set(english)) == len(set(chinese)) == len(family.WORDS)
    assert "drafter" in english
    assert "草稿模型" in chinese
