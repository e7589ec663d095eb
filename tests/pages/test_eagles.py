"""Below the EAGLE lessons: one knob at a time, confidence, depth and vocabulary, all from the shipped recordings."""

import pytest
import streamlit as st

from pages.parts import eagles, recorded
from pages.parts.text import catalogue
from spec_core.trace import tau
from tests.pages.conftest import address, open_page

SHIPPED = recorded.FOLDER
EN = catalogue("en")
KNOBS = ("tokens", "depth", "top_k")


@pytest.fixture(autouse=True)
def real(pinned: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recordings in the repository, not the toys of the other page tests."""
    monkeypatch.setattr(recorded, "FOLDER", SHIPPED)
    st.cache_data.clear()


@pytest.mark.parametrize("knob", KNOBS)
def test_only_the_turned_knob_differs(knob: str) -> None:
    runs = eagles.turned("eagle2", knob)
    published = recorded.recording("code", "eagle2", "published")
    assert published
    values = [run.value for run in runs]
    assert values == sorted(set(values))
    assert published.header.knobs[knob] in values
    assert len(values) >= 4
    for run in runs:
        assert {**run.trace.header.knobs, knob: 0} == {**published.header.knobs, knob: 0}
        assert run.trace.header.prompt == published.header.prompt


def test_numbers_of_a_setting_are_the_runs_own() -> None:
    for run in eagles.turned("eagle2", "tokens"):
        found = eagles.numbers(run.trace)
        assert found[EN["eagle2.tau"]] == f"{tau(run.trace):.2f}"
        assert int(found[EN["eagle2.rows"]]) <= run.value
    for run in eagles.turned("eagle2", "depth"):
        assert int(eagles.numbers(run.trace)[EN["eagle2.waits"]]) == run.value


def test_a_slider_moves_the_numbers_and_the_pictures() -> None:
    at = open_page("eagle2")
    assert not at.exception
    by_tokens = {run.value: eagles.numbers(run.trace) for run in eagles.turned("eagle2", "tokens")}
    for value in (4, 16):
        at.select_slider(key="turned tokens").set_value(value).run()
        shown = at.table[0].value.to_string()
        assert by_tokens[value][EN["eagle2.tau"]] in shown
        assert len(at.get("bidi_component")) == 2
    at.select_slider(key="turned tokens").set_value(59).run()
    assert len(at.get("bidi_component")) == 1  # nothing to compare the paper's own setting with
    at.button_group(key="turned knob").set_value("depth").run()
    assert address(at)["turned"] == "depth"
    assert at.select_slider(key="turned depth").value in {run.value for run in eagles.turned("eagle2", "depth")}


def test_what_lies_outside_the_vocabulary_is_counted() -> None:
    trace = recorded.recording("list", "eagle3", "published")
    assert trace
    row = eagles.outside("list", trace)
    lacking = [token for step in trace.steps[1:] for token in step.beyond]
    tokens = sum(len(step.committed) for step in trace.steps[1:])
    assert row[EN["eagle3.count"]] == f"{len(lacking)} ({len(lacking) / tokens:.0%})"
    assert row[EN["number.count"]] == str(tokens)


def test_without_recordings_nothing_is_claimed(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    st.cache_data.clear()
    for name in ("eagle", "eagle2", "eagle3"):
        at = open_page(name)
        assert not at.exception
        assert [box.value for box in at.info] == [EN["lesson.empty"]]


def test_a_link_opens_the_setting_its_sender_saw() -> None:
    at = open_page("eagle2", turned="tokens", tokens="16")
    assert at.select_slider(key="turned tokens").value == 16
    assert at.button_group(key="turned knob").value == "tokens"
    assert not open_page("eagle2", turned="tokens", tokens="17").exception  # not recorded: the usual one
