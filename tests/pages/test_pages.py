"""Every page opens in both languages, draws what was recorded, and keeps its choices in the address."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st
from streamlit.runtime.context import ContextProxy
from streamlit.testing.v1 import AppTest

from pages.parts import choice, colours, recorded, source
from pages.parts.text import catalogue
from spec_core.presets import read
from tests.pages.conftest import open_page, scene_of

PAGES = ("start", "race", "step", "latency", "about")


@pytest.mark.parametrize("theme", colours.THEMES)
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_in_either_language(name: str, language: str, theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContextProxy, "theme", SimpleNamespace(type=theme))
    at = open_page(name, language)
    assert colours.theme() == colours.THEMES[theme]
    assert not at.exception
    titles = {"step": "stepping.title", "latency": "lab.title"}
    assert at.title[0].value == catalogue(language)[titles.get(name, f"{name}.title")]


def test_the_race_has_a_lane_for_every_method() -> None:
    at = open_page("race", "en")
    text = scene_of(at)
    for key in source.methods():
        assert f'"{key}.' in text


def test_the_clock_and_the_prompt_come_from_the_address() -> None:
    at = open_page("race", "en", clock="passes", trace="list")
    assert at.button_group(key="clock").value == "passes"
    assert at.selectbox(key="trace").value == "list"


def test_an_unknown_prompt_in_the_address_falls_back() -> None:
    at = open_page("race", "en", trace="no such prompt")
    assert not at.exception
    assert at.selectbox(key="trace").value in ("story", "list")


def test_the_step_page_shows_the_method_in_the_address() -> None:
    at = open_page("step", "zh", method="eagle2", tuning="device")
    assert at.button_group(key="method").value == "eagle2"
    assert at.button_group(key="tuning").value == "device"
    assert '"hue": "eagle2"' in scene_of(at).replace('":"', '": "')


def test_a_choice_goes_into_the_address_and_survives_a_visit_elsewhere() -> None:
    at = open_page("race", "en")
    at.button_group(key="clock").set_value("model").run()
    assert at.query_params["clock"] in ("model", ["model"])
    at.switch_page("pages/about.py").run()
    at.switch_page("pages/race.py").run()
    assert at.button_group(key="clock").value == "model"


def test_a_default_of_one_page_is_not_taken_to_another() -> None:
    """The race opens with what was fastest, the step page with the papers' trees; a choice is kept."""
    at = open_page("race", "en")
    assert at.button_group(key="tuning").value == "device"
    turned(at, "step")
    assert at.button_group(key="tuning").value == "published"
    at.button_group(key="tuning").set_value("device").run()
    turned(at, "about")
    turned(at, "step")
    assert at.button_group(key="tuning").value == "device"
    turned(at, "race")
    at.button_group(key="tuning").set_value("published").run()
    turned(at, "step")
    assert at.button_group(key="tuning").value == "published"


def turned(at: AppTest, page: str) -> None:
    """By the menu, whose links have no choices in them."""
    at.query_params.clear()
    at.switch_page(f"pages/{page}.py").run()


def test_step_and_form_begin_with_the_method_the_app_opens_with(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with whatever method was added last."""
    monkeypatch.setattr(recorded, "opening_name", lambda: ["story", "eagle3", "device"])
    at = open_page("step", "en")
    assert at.button_group(key="method").value == "eagle3"
    assert choice.first_of(["plain", "eagle3", "ddtree"]) == "eagle3"
    assert choice.first_of(["plain", "lookup"]) == "lookup"


@pytest.mark.parametrize(("asked", "title"), [("zh-CN", "zh"), ("zh_TW", "zh"), ("EN", "en"), ("fr", "en")])
def test_languages_are_known_by_their_first_part(asked: str, title: str) -> None:
    at = open_page("race", asked)
    assert at.title[0].value == catalogue(title)["race.title"]


def test_a_link_for_a_lecture_can_be_made_where_the_address_has_a_longer_tag() -> None:
    at = open_page("race", "en-GB")
    at.button(key="lecture").click().run()
    assert not at.exception


def test_the_time_to_the_first_token_stands_beside_the_speed() -> None:
    at = open_page("race", "en")
    at.session_state["fold.table.runs"] = True
    at.run()
    assert catalogue("en")["number.first"] in at.table[-1].value.columns


def test_the_table_beside_the_picture_is_of_the_step_it_rests_at() -> None:
    at = open_page("step", "en", method="eagle3", trace="story")
    assert len(at.dataframe[0].value) > 1


def test_charts_and_tables_are_made_when_they_are_opened() -> None:
    at = open_page("race", "en")
    assert len(at.get("plotly_chart")) + len(at.table) == 0  # their scripts would hold up the picture
    for name in ("chart.title", "table.depths", "table.runs"):
        at.session_state[f"fold.{name}"] = True
    at.run()
    assert len(at.get("plotly_chart")) == 1
    assert [len(table.value.columns) > 3 for table in at.table] == [True, True]


def test_the_latency_page_opens_with_the_machine_that_the_settings_are_of() -> None:
    at = open_page("latency", "en")
    assert read().device in at.selectbox(key="machine").options[0]
    assert at.selectbox(key="machine").index == 0


def test_without_recordings_pages_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    st.cache_data.clear()
    for name in PAGES:
        at = open_page(name, "en")
        assert not at.exception
        if name in ("race", "step"):
            assert [box.value for box in at.info] == [catalogue("en")["stepping.empty"]]


def test_a_link_to_a_moment_opens_at_it() -> None:
    at = open_page("step", "en", trace="list", tuning="published", method="eagle3", at="7")
    assert '"position": 7' in scene_of(at).replace('":', '": ').replace("  ", " ")
    assert at.query_params["at"] in ("7", ["7"])


def test_a_moment_that_is_not_there_is_ignored() -> None:
    for asked in ("99999", "-1", "x"):
        assert not open_page("step", "en", at=asked).exception


def test_the_start_opens_with_a_trained_drafter() -> None:
    shown = scene_of(open_page("start", "en"))
    assert not any(f'"hue":"{key}"' in shown.replace('": "', '":"') for key in ("plain", "lookup"))


def test_runs_made_for_lessons_are_read_by_name_and_offered_by_no_list(shipped: Path) -> None:
    named = recorded.Recording("story", "dflash", "layers-3")
    shutil.copy(shipped / "story.dflash.published.jsonl.gz", shipped / named.path.name)
    try:
        st.cache_data.clear()
        assert recorded.recording("story", "dflash", "layers-3")
        assert named not in recorded.recordings()
        assert {one.preset for one in recorded.recordings()} == {"device", "published"}
    finally:
        named.path.unlink()
