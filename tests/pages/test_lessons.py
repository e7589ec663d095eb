"""Every lesson opens on the recordings the app ships, finds all its moments, and has exactly the texts it needs."""

import importlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st
from streamlit.runtime.context import ContextProxy
from streamlit.testing.v1 import AppTest

from pages.lessons import ORDER
from pages.lessons.lesson import Beat, Lesson
from pages.parts import colours, recorded, text
from pages.parts import lesson as part
from pages.parts.text import catalogue
from pages.parts.twin import step_at
from pages.pictures import rule
from pages.pictures.scene import Scene, Value, state
from tests.pages.conftest import address, open_page, scene_of
from tests.pages.tiny import LESSON as TINY
from tests.pages.tiny import TEXTS

ROOT = Path(__file__).parents[2]
NAMES = [path.stem for path in sorted((ROOT / "pages/lessons").glob("*.py")) if path.stem not in ("__init__", "lesson")]
LESSONS: list[Lesson] = [importlib.import_module(f"pages.lessons.{name}").LESSON for name in NAMES]
SHIPPED = recorded.FOLDER
SCRIPT = "from pages.parts.lesson import lesson\nfrom tests.pages.tiny import LESSON\nlesson(LESSON)\n"


@pytest.fixture(autouse=True)
def real(pinned: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recordings in the repository, not the toys of the other page tests."""
    monkeypatch.setattr(recorded, "FOLDER", SHIPPED)
    st.cache_data.clear()


@pytest.fixture
def tiny_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The catalogues with the tiny lesson's texts among them."""
    shutil.copytree(text.LOCALES, tmp_path / "locales")
    texts = json.dumps({"tiny.title": "Tiny"} | {f"lesson.tiny.{key}": value for key, value in TEXTS.items()})
    for language in text.NAMES:
        (tmp_path / "locales" / language / "tiny.json").write_text(texts)
    monkeypatch.setattr(text, "LOCALES", tmp_path / "locales")
    catalogue.cache_clear()
    yield
    catalogue.cache_clear()


def texts_of(beat: Beat) -> set[str]:
    """The texts a beat needs, by the ends of their keys."""
    asked = {"question", "because", *(f"option.{i + 1}" for i in range(beat.options))} if beat.options else set()
    return {f"{beat.id}.{name}" for name in {"title", "text"} | ({"task"} if beat.task else set()) | asked}


@pytest.mark.parametrize("theme", colours.THEMES)
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("told", LESSONS, ids=lambda told: told.key)
def test_a_lesson_opens_with_all_its_moments(
    told: Lesson, language: str, theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ContextProxy, "theme", SimpleNamespace(type=theme))
    at = open_page(told.key, language)
    assert colours.theme() == colours.THEMES[theme]
    assert not at.exception
    assert at.title[0].value == catalogue(language)[f"{told.key}.title"]
    lines = json.loads(scene_of(at))["scene"]["lines"]
    assert [line["id"] for line in lines] == [beat.id for beat in told.beats]
    assert len(at.dataframe[0].value) >= 1


@pytest.mark.parametrize("told", [*LESSONS, TINY], ids=lambda told: told.key)
def test_a_lesson_has_the_texts_it_needs_and_no_other(told: Lesson, tiny_texts: None) -> None:
    start = f"lesson.{told.key}."
    needed = {start + name for beat in told.beats for name in texts_of(beat)}
    assert {key for key in catalogue("en") if key.startswith(start)} == needed


@pytest.mark.parametrize("told", LESSONS, ids=lambda told: told.key)
def test_a_question_has_one_right_option(told: Lesson) -> None:
    assert all(1 <= beat.right <= beat.options for beat in told.beats if beat.options)


def on_stage(scene: Scene, frame: int) -> set[str]:
    """All looks that can be seen at a frame."""
    now, shapes = state(scene, frame), {shape.id: shape for shape in scene.shapes}
    seen = [(now.get(name, {}), shape) for name, shape in shapes.items()]
    return {
        word
        for change, shape in seen
        if change.get("on", shape.on)
        for word in str(change.get("look", shape.look)).split()
    }


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("told", LESSONS, ids=lambda told: told.key)
def test_what_a_text_can_light_is_on_stage_when_it_is_said(told: Lesson, language: str) -> None:
    def speak(key: str, values: Mapping[str, Value]) -> str:
        return catalogue(language)[key].format_map(values)

    casts = [[recorded.recording(prompt, *one) for one in told.cast] for prompt in part.prompts(told)]
    found = told.choose(([run for run in cast if run] for cast in casts), speak)
    assert found
    for line in found[1].lines:
        lights = set(re.findall(r"\]\(([^)]+)\)", line.text + line.task))
        assert lights <= on_stage(found[1], line.frame), line.id


def test_every_lesson_is_in_the_navigation() -> None:
    assert set(NAMES) <= set(ORDER)


def opened(**query: str) -> AppTest:
    at = AppTest.from_string(SCRIPT, default_timeout=60)
    for key, value in query.items():
        at.query_params[key] = value
    return at.run()


def test_the_tiny_lesson_shows_lines_table_and_origin(tiny_texts: None) -> None:
    at = opened()
    assert not at.exception
    lines = json.loads(scene_of(at))["scene"]["lines"]
    assert [line["title"] for line in lines][:2] == ["A first token", "One guess"]
    assert lines[2]["question"] == {
        "text": lines[2]["question"]["text"],
        "options": ["Yes", "No"],
        "right": 1,
        "because": "Weights are read once for all rows.",
    }
    assert "{" not in lines[2]["title"]
    assert len(at.dataframe[0].value) >= 1
    assert any("REPLAY" in caption.value for caption in at.caption)


def test_a_link_opens_a_lesson_at_what_it_says_and_with_its_prompt(tiny_texts: None) -> None:
    other = part.prompts(TINY)[-1]
    at = opened(at="ask", trace=other)
    data = json.loads(scene_of(at))
    assert data["position"] == data["scene"]["lines"][2]["frame"]
    assert not data["autoplay"]
    assert address(at) == {"at": "ask", "trace": other}


def test_what_an_address_asks_in_vain_is_ignored(tiny_texts: None) -> None:
    for query in ({"at": "nothing of this name"}, {"at": "99999"}, {"trace": "no such prompt"}):
        at = opened(**query)
        assert not at.exception
        assert json.loads(scene_of(at))["autoplay"]


def test_with_another_prompt_the_reader_stays_at_the_same_beat(tiny_texts: None) -> None:
    at = opened(at="ask")
    at.selectbox[0].set_value(part.prompts(TINY)[-1]).run()
    data = json.loads(scene_of(at))
    assert data["position"] == data["scene"]["lines"][2]["frame"]
    assert not data["autoplay"]


def test_a_moment_left_by_another_lesson_is_not_taken_for_a_wish() -> None:
    at = open_page("eagle", "en", at="shift")
    at.switch_page("pages/eagle3.py").run()
    assert json.loads(scene_of(at))["position"] == json.loads(scene_of(at))["scene"]["lines"][0]["frame"]


@pytest.mark.parametrize("told", LESSONS, ids=lambda told: told.key)
def test_the_table_is_of_the_step_that_is_shown(told: Lesson) -> None:
    """Every frame's step is one of its run's, and what drafted it is what the picture speaks of."""
    casts = [[recorded.recording(prompt, *one) for one in told.cast] for prompt in part.prompts(told)]
    found = told.choose(([run for run in cast if run] for cast in casts), lambda key, values: "")
    assert found
    runs, scene = found
    for frame in scene.frames:
        run, step = step_at(runs, frame)
        assert run is runs[frame.run]
        assert step is run.steps[frame.at]
        if wanted := SHOWN.get((told.key, frame.act)):
            assert (run.header.method.key, run.header.sampling.temperature > 0) == wanted


SHOWN = {  # lesson and act → whose step it is, and whether it was drawn
    ("why", "plain"): ("plain", False),
    ("eagle2", "growth"): ("eagle2", False),
    ("eagle2", "twins"): ("eagle", False),
    ("lossless", "same"): ("plain", False),
    ("lossless", "match"): ("eagle3", True),
}


def test_the_match_rule_is_shown_beside_the_step_that_drew_its_token() -> None:
    told = importlib.import_module("pages.lessons.lossless").LESSON
    runs = [run for one in told.cast if (run := recorded.recording(part.prompts(told)[0], *one))]
    case = rule.matched(runs[1])
    assert case
    scene = told.play(runs, lambda key, values: "")
    assert scene
    steps = {id(step_at(runs, frame)[1]) for frame in scene.frames if frame.act == "match"}
    assert steps == {id(runs[1].steps[case.step])}


def test_without_recordings_a_lesson_says_so(tiny_texts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    st.cache_data.clear()
    assert [box.value for box in opened().info] == [catalogue("en")["lesson.empty"]]
