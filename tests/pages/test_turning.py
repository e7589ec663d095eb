"""The sliders below the DFlash lesson switch between recorded runs, one knob at a time, and stand in the address."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from pages.parts import recorded, source, turning
from spec_core.trace import ids, tau
from tests.pages.conftest import address, open_page

SHIPPED = recorded.FOLDER
KEY = "dflash"


@pytest.fixture(autouse=True)
def real(pinned: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The recordings in the repository."""
    monkeypatch.setattr(recorded, "FOLDER", SHIPPED)
    st.cache_data.clear()
    yield
    st.cache_data.clear()


def masks_in(at: AppTest) -> int:
    """Guesses of the first step in the lower picture."""
    shapes = json.loads(at.get("bidi_component")[1].proto.bytes.decode())["scene"]["shapes"]
    return len([s for s in shapes if s["id"].startswith("s1.n")]) - 1


def test_every_knob_offers_what_was_recorded_and_the_published_value() -> None:
    method = source.methods()[KEY]
    turned = turning.knobs(method)
    assert {knob: list(names) for knob, names in turned.items()} == {"layers": [1, 2, 3, 4, 5], "block": [4, 8, 16]}
    for knob, names in turned.items():
        assert names[int(method.published[knob])] == turning.PUBLISHED
        for value, name in names.items():
            run = recorded.recording(turning.prompt_of(method), KEY, name)
            assert run
            assert run.header.knobs[knob] == value


def test_all_recorded_runs_say_the_same_text() -> None:
    method = source.methods()[KEY]
    names = {name for names in turning.knobs(method).values() for name in names.values()}
    runs = [recorded.recording(turning.prompt_of(method), KEY, name) for name in names]
    assert len({tuple(ids(run)) for run in runs if run}) == 1


def test_a_slider_switches_the_run_and_puts_the_other_back() -> None:
    at = open_page(KEY, "en", block="4")
    assert not at.exception
    assert masks_in(at) == 3
    at.select_slider(key="turn.layers").set_value(2).run()
    assert at.select_slider(key="turn.block").value == 16
    assert masks_in(at) == 15
    assert address(at).get("layers") == "2"
    assert "block" not in address(at)


def test_what_was_not_recorded_is_ignored() -> None:
    at = open_page(KEY, "zh", block="12", layers="nine")
    assert not at.exception
    assert at.select_slider(key="turn.block").value == 16
    assert at.select_slider(key="turn.layers").value == 5


def test_the_table_holds_every_run() -> None:
    at = open_page(KEY, "en")
    rows = at.table[0].value
    method = source.methods()[KEY]
    names = [name for names in turning.knobs(method).values() for name in names.values()]
    runs = [recorded.recording(turning.prompt_of(method), KEY, name) for name in names]
    assert list(rows["τ"]) == [f"{tau(run):.2f}" for run in runs if run]


def test_the_cost_of_drafts_is_drawn_when_it_is_opened_and_follows_the_sliders() -> None:
    at = open_page(KEY, "en", layers="3")
    assert len(at.get("plotly_chart")) == 0
    at.session_state["fold.turn.cost"] = True
    at.run()
    chart = json.loads(at.get("plotly_chart")[0].proto.spec)
    curves = {trace["name"] for trace in chart["data"]}
    assert any("3-layer" in name for name in curves)
    assert not any("4-layer" in name or "5-layer" in name for name in curves)


def test_without_the_variants_the_lesson_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in SHIPPED.glob("chat.*.published.jsonl.gz"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    st.cache_data.clear()
    at = open_page(KEY, "en")
    assert not at.exception
    assert len(at.get("bidi_component")) == 1
    assert len(at.select_slider) == 0
