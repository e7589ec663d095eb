"""Below the lesson on losslessness: recorded draws with their test, and a bench where wrong rules are caught."""

from pathlib import Path

import pytest
import streamlit as st

from pages.parts import draws as part
from pages.parts import recorded
from pages.parts.text import catalogue
from spec_core import draws
from spec_core.draws import Arm, Experiment, Spot
from spec_core.trace import KnobValue, Network, Sampling, Word
from tests.pages.conftest import address, open_page

SHIPPED = recorded.FOLDER
LAW = [0.5, 0.3, 0.2]
SHORT: dict[str, KnobValue] = {"shape": "sampled"}
ARMS = [
    Arm("plain", {}, [505, 297, 198], 0, 0),
    Arm("eagle", SHORT, [490, 310, 200], 1000, 400),
    Arm("eagle", SHORT, [700, 200, 100], 1000, 700, "argmax"),
]
EN = catalogue("en")


@pytest.fixture(autouse=True)
def experiment(pinned: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository's recordings, and a small experiment in place of its own."""
    network = Network("toy", "hash", 1, 2, 3, 4, 5)
    spot = Spot([1, 2], 3, [[4, 5], [4, 6]], LAW, ARMS)
    known: dict[int, Word] = {1: "It", 2: " is", 3: " a", 4: " red", 5: " car", 6: " bus"}
    found = Experiment("id", "2026-11-30", "cpu", "float32", network, {}, "story", Sampling(1.0), 1000, [spot], known)
    path = tmp_path / "draws.json"
    draws.save(found, path)
    monkeypatch.setattr(part, "FILE", path)
    monkeypatch.setattr(recorded, "FOLDER", SHIPPED)
    st.cache_data.clear()
    return path


def test_every_arm_is_judged_and_the_spoilt_one_fails() -> None:
    at = open_page("lossless")
    assert not at.exception
    table = at.table[0].value
    assert list(table[EN["draws.verdict"]]) == [EN["draws.fits"], EN["draws.fits"], EN["draws.fails"]]
    assert list(table[EN["draws.held"]]) == ["–", "40%", "70%"]
    assert any("REPLAY" in caption.value for caption in at.caption)


def test_the_chart_shows_what_is_expected_and_what_came() -> None:
    shown = [part.Drawn("a", "plain", ARMS[0].counts, False)]
    chart = part.tally(["x", "y", "others"], LAW, shown, 1000)
    assert [row[EN["draws.law"]] for row in chart.rows] == [500.0, 300.0, 200.0]
    assert [row["a"] for row in chart.rows] == [505, 297, 198]
    bar = part.bars(["x", "y", "others"], LAW, 1000)
    assert bar.to_plotly_json()["error_y"]["array"][0] == pytest.approx(2 * (1000 * 0.25) ** 0.5)


def test_what_finds_no_place_is_counted_with_the_others() -> None:
    law = [0.05] * 20
    chart = part.tally([str(i) for i in range(19)] + ["others"], law, [part.Drawn("a", "plain", [5] * 20, False)], 100)
    assert len(chart.rows) == part.SHOWN + 1
    assert chart.rows[-1]["a"] == 5 * (20 - part.SHOWN)


def said(**query: str) -> str:
    at = open_page("lossless", **query)
    assert not at.exception
    return next(one.value for one in at.markdown if "χ²" in one.value)


def test_the_bench_tells_right_rules_from_wrong_ones() -> None:
    for rule in draws.RIGHT:
        assert said(rule=rule, draws="20000").startswith("**✓")
    for rule in ("argmax", "threshold"):
        assert said(rule=rule, draws="20000").startswith("**✗")


def test_drawing_again_draws_anew() -> None:
    at = open_page("lossless")
    before = next(one.value for one in at.markdown if "χ²" in one.value)
    next(button for button in at.button if button.label == EN["bench.again"]).click()
    after = next(one.value for one in at.run().markdown if "χ²" in one.value)
    assert before != after


def test_choices_of_the_bench_stand_in_the_address() -> None:
    at = open_page("lossless", guess="2", rule="match", draws="5000")
    assert {"guess": "2", "rule": "match", "draws": "5000"}.items() <= address(at).items()
    for asked in ({"guess": "99999"}, {"rule": "no such rule"}, {"draws": "7"}):
        assert not open_page("lossless", **asked).exception


def test_every_tested_guess_can_be_seen_on_trial() -> None:
    at = open_page("lossless", guess="3")
    trial = at.get("bidi_component")[1].proto.bytes.decode()
    assert '"zone"' in trial
    assert [slider.value for slider in at.slider if str(slider.key).startswith("bench.guess.")] == [3]
    assert '"zone"' in open_page("lossless", guess="4").get("bidi_component")[1].proto.bytes.decode() != trial


def test_without_an_experiment_the_page_says_how_to_make_one(experiment: Path) -> None:
    experiment.unlink()
    at = open_page("lossless")
    assert [box.value for box in at.info] == [EN["draws.none"]]


def test_the_latency_page_and_the_bench_do_not_take_each_others_values() -> None:
    """Both have a control that the address calls `guess`: a switch there, a number here."""
    at = open_page("latency", guess="1")
    at.query_params.clear()  # as a menu's link does
    at.switch_page("pages/lossless.py").run()
    assert not at.exception
    number = next(slider.value for slider in at.slider if str(slider.key).startswith("bench.guess."))
    at.switch_page("pages/latency.py").run()
    assert not at.exception
    assert int(str(number)) > 1
    assert at.toggle(key="guess").value is True


def test_the_places_and_ways_of_the_draws_stand_in_the_address() -> None:
    at = open_page("lossless", arms="0,2")
    assert at.button_group(key="arms").value == [0, 2]
    assert address(at)["arms"] == "0,2"
    assert open_page("lossless", arms="0,9").button_group(key="arms").value == [0, 1, 2]  # no such arm: the usual ones
