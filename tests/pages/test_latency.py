"""The latency lab: the recorded chart and its controls, a measurement made live, other machines' files, the model."""

import gzip
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from pages.parts import charts, costs, findings, machines, recorded, source, whatif
from pages.parts.text import catalogue
from spec_core import measurement
from spec_core.measure import Plan, Subject, collect, measure
from spec_core.measurement import Line, Measurement, Point, Task
from spec_core.presets import Measured, Tried
from spec_core.trace import DepthCount, DraftTree, Step, Trace, Verdict, accepted_by_depth, load
from tests.pages.conftest import address, open_page
from tests.toy import toy_model, toy_networks

EN = catalogue("en")


@pytest.fixture(scope="session")
def measured() -> Measurement:
    model = toy_model()
    subject = Subject(model, toy_networks(model), frozenset(), model.decoder.config.layers)
    return collect(measure(subject, Plan((1, 4, 8, 16), (16, 64), 1, far=(32,), budgets=(8, 20))))


@pytest.fixture(autouse=True)
def folder(measured: Measurement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recordings are one machine's."""
    measurement.save(measured, tmp_path / "toy.jsonl.gz")
    monkeypatch.setattr(machines, "FOLDER", tmp_path)
    st.cache_data.clear()
    return tmp_path


def figures(at: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in at.get("plotly_chart")]


def drawn(chart: charts.Chart) -> list[dict[str, Any]]:
    """The traces of a figure as plain data."""
    return json.loads(str(chart.figure.to_json()))["data"]


def names(figure: dict[str, Any]) -> list[str]:
    return [trace["name"] for trace in figure["data"]]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_opens_with_the_recorded_chart(language: str, measured: Measurement) -> None:
    at = open_page("latency", language)
    words = catalogue(language)
    assert not at.exception
    assert at.title[0].value == words["lab.title"]
    first = figures(at)[0]
    assert len(first["data"]) == len(measurement.lines(measured))
    assert first["layout"]["xaxis"]["title"]["text"] == words["lab.x"]
    said = " ".join(one.value for one in at.caption)
    assert words["badge.replay"].split(" ")[0] in said
    assert words["badge.model"] in said
    assert [box.value for box in at.subheader] == [
        words[key]
        for key in (
            "split.title",
            "heads.title",
            "whatif.title",
            "sweep.title",
            "accept.title",
            "sure.title",
            "costs.title",
        )
    ]


def test_controls_change_the_chart_and_stand_in_the_address(measured: Measurement) -> None:
    at = open_page("latency")
    at.slider(key="layers").set_value(1).run()
    at.slider(key="block").set_value(9).run()
    at.select_slider(key="context").set_value(16).run()
    at.button_group(key="scale").set_value("log").run()
    figure = figures(at)[0]
    blocks = [name for name in names(figure) if name.startswith("DFlash")]
    assert blocks == ["DFlash, 1-layer"]
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == [8]
    assert figure["layout"]["yaxis"]["type"] == figure["layout"]["xaxis"]["type"] == "log"
    chain = figure["data"][names(figure).index("EAGLE-3, chain")]
    wanted = measurement.curve(measured, Line("eagle3", "chain", 1), 16)
    assert chain["y"] == [p.median for p in wanted]
    kept = {"layers": "1", "block": "9", "context": "16", "scale": "log"}
    assert kept.items() <= address(at).items()
    again = figures(open_page("latency", **kept))[0]
    assert again["data"] == figure["data"]


@pytest.mark.parametrize(
    "bad", [{"layers": "9"}, {"block": "x"}, {"context": "17"}, {"scale": "cube"}, {"machine": "?"}]
)
def test_bad_values_in_the_address_are_ignored(bad: dict[str, str]) -> None:
    at = open_page("latency", **bad)
    assert not at.exception
    assert len(figures(at)[0]["data"]) > 3


def test_axes_stay_where_they_are_when_curves_go(measured: Measurement) -> None:
    both = [charts_axes(open_page("latency", layers=layers)) for layers in ("1", "2")]
    assert both[0] == both[1]


def charts_axes(at: AppTest) -> tuple[object, object]:
    layout = figures(at)[0]["layout"]
    return layout["xaxis"]["range"], layout["yaxis"]["range"]


def test_a_chart_has_a_sentence_per_point_a_table_and_a_csv(measured: Measurement) -> None:
    chart = charts.latency(measured, [], 16, 2, 15, log=False)
    for trace in drawn(chart):
        assert len(trace["text"]) == len(trace["x"])
        assert trace["hovertemplate"] == "%{text}<extra></extra>"
    assert len(chart.rows) == sum(len(trace["x"]) for trace in drawn(chart))
    text = charts.csv_bytes(chart.rows).decode("utf-8-sig").splitlines()
    assert text[0].split(",") == list(chart.rows[0])
    assert len(text) == 1 + len(chart.rows)
    assert charts.csv_bytes([]) == b"\xef\xbb\xbf\r\n"
    at = open_page("latency")
    assert len(at.get("download_button")) >= 5
    assert len(at.table) >= 5


def test_hue_is_the_method_and_dash_the_form_and_layers(measured: Measurement) -> None:
    found = drawn(charts.latency(measured, [], 16, 5, 15, log=False))
    looks = {one["name"]: (one["line"]["color"], one["line"]["dash"], one["marker"]["symbol"]) for one in found}
    assert len(set(looks.values())) == len(looks)
    assert looks["EAGLE-3, chain"][0] == looks["EAGLE-3, paper’s tree"][0] != looks["EAGLE, chain"][0]
    assert looks["DFlash, 1-layer"][0] == looks["DFlash, 2-layer"][0]


def test_a_step_adds_up_from_its_parts(measured: Measurement) -> None:
    chart = charts.split(measured, 16, 2, 8)
    bars = [bar for bar in drawn(chart) if bar["x"][0] is not None]
    assert [bar["name"] for bar in bars] == [EN[f"kind.{kind}"] for kind in ("draft", "head", "target", "host")]
    chain = measurement.curve(measured, Line("eagle3", "chain", 1), 16)[2]
    place = bars[0]["y"].index("EAGLE-3, chain")
    assert bars[0]["x"][place] == chain.split["draft"]
    assert bars[1]["x"][place] == chain.split["head"]
    ninth = measurement.at(measurement.targets(measured, 16), 9, lambda p: p.split["target"])
    assert bars[2]["x"][place] == pytest.approx(ninth)


def test_the_head_lesson_names_the_vocabularies(measured: Measurement) -> None:
    found = [trace["name"] for trace in drawn(charts.heads(measured))]
    assert found == [f"{n} words, {how}" for how in ("K calls of one row", "one call of K rows") for n in (48, 64)]


def test_what_more_work_costs_is_drawn_from_the_measurement(measured: Measurement) -> None:
    context, budget = costs.by_context(measured), costs.by_budget(measured)
    assert context
    assert budget
    curves = {trace["name"]: trace["x"] for trace in drawn(context)}
    assert curves[charts.name(measurement.Line("eagle3", "chain", 1))] == [16, 32, 64]
    assert curves[EN["costs.rows"].format(rows=16)] == [16, 32, 64]
    tree, check = drawn(budget)
    assert tree["x"] == check["x"] == ["8", "20"]
    assert check["y"] == [p.median for p in measurement.targets(measured, 16) if p.task.length in (9, 21)]
    bare = Measurement(measured.setup, {task: p for task, p in measured.points.items() if task.context == 16})
    assert costs.by_context(bare) is None
    assert costs.by_budget(Measurement(measured.setup, {})) is None


def test_another_machine_is_laid_over_and_named(measured: Measurement, folder: Path) -> None:
    import msgspec

    other = Measurement(msgspec.structs.replace(measured.setup, id="gpu", device="A GPU"), measured.points)
    measurement.save(other, folder / "zz.jsonl.gz")
    st.cache_data.clear()
    at = open_page("latency", machine="toy")
    assert not any("A GPU" in name for name in names(figures(at)[0]))
    at.multiselect(key="others").set_value(["zz"]).run()
    over = [name for name in names(figures(at)[0]) if "A GPU" in name]
    assert len(over) == len(measurement.lines(measured))


def test_a_broken_recording_is_left_out(folder: Path) -> None:
    (folder / "a.jsonl.gz").write_bytes(b"nonsense")
    st.cache_data.clear()
    at = open_page("latency")
    assert not at.exception
    assert at.selectbox(key="machine").options == ["toy · " + at.selectbox(key="machine").options[0].split(" · ")[1]]


def test_without_recordings_the_page_says_what_to_do(folder: Path) -> None:
    (folder / "toy.jsonl.gz").unlink()
    at = open_page("latency")
    assert not at.exception
    assert EN["lab.none"] in [box.value for box in at.info]
    assert at.get("file_uploader")


def test_without_torch_the_recordings_are_shown_and_measuring_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "can_run", lambda: False)
    at = open_page("latency", lab="0123456789ab")
    assert not at.exception
    assert len(figures(at)[0]["data"]) > 3
    assert EN["lab.replay"] in [box.value for box in at.info]
    assert not [button for button in at.button if button.key == "start"]


def wait(at: AppTest, done: Any) -> AppTest:
    deadline = time.monotonic() + 120
    while not done(at.run()):
        assert not at.exception
        assert time.monotonic() < deadline
    return at


def test_a_measurement_made_here_is_drawn_as_it_grows_and_then_shown(
    on_toys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "LENGTHS", (1, 4))
    monkeypatch.setattr(source, "ROUNDS", 60)
    at = open_page("latency")
    at.select_slider(key="measured context").set_value(64)
    at.button(key="start").click().run()
    job = address(at)["lab"]
    wait(at, lambda at: any("timings" in bar.proto.text for bar in at.get("progress")))
    again = open_page("latency", lab=job)  # a reload: a new session, and only the address
    assert again.button(key="stop measuring")
    again.button(key="stop measuring").click().run()
    wait(again, lambda at: "lab" not in address(at))
    assert not again.exception
    assert again.selectbox(key="machine").value not in ("toy", None)
    assert any(one.value.startswith("MEASURED") for one in again.caption)
    assert set(figures(again)[0]["data"][0]["x"]) <= {1, 4}


def test_what_cannot_be_measured_is_said_in_the_readers_language(
    on_toys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "LENGTHS", (99,))
    at = open_page("latency", "zh")
    at.button(key="start").click().run()
    wait(at, lambda at: bool(at.error))
    assert at.error[0].value.startswith("无法完成测量。")
    assert len(figures(at)[0]["data"]) > 3


def test_a_measurement_that_is_gone_is_said(on_toys: None) -> None:
    at = open_page("latency")
    at.session_state["bench"].job = "0123456789ab"
    at.run()
    assert [box.value for box in at.error] == [EN["lab.gone"]]


@pytest.mark.parametrize("packed", [True, False])
def test_an_uploaded_file_is_read(measured: Measurement, packed: bool) -> None:
    raw = measurement.file_bytes(measured)
    assert source.open_measurement("m", gzip.compress(raw) if packed else raw) == measured


@pytest.mark.parametrize("raw", [b"", b"hello\n", b"\x1f\x8bhalf", b'{"setup":{}}\n'])
def test_a_bad_file_costs_one_sentence(raw: bytes) -> None:
    with pytest.raises(source.Problem) as caught:
        source.open_measurement("x.jsonl", raw)
    assert (caught.value.notice.key, caught.value.notice.values["file"]) == ("lab.bad", "x.jsonl")


# ---- the model


def timed(form: measurement.Form, length: int, rows: int = 0, method: str = "", **split: float) -> Point:
    whole = sum(split.values())
    layers = 1 if method else 0
    return Point(Task(form, length, 16, method, layers), whole, whole, whole, 3, split, rows, 1)  # type: ignore[arg-type]


@pytest.fixture
def plain_numbers(measured: Measurement) -> Measurement:
    """A target of 10 ms and 1 ms per further row; a chain of 2 ms per token, half of it the head's; no host time."""
    points = [timed("target", rows, rows, target=9.0 + rows) for rows in (1, 2, 4, 8, 16)]
    points += [timed("chain", k, k + 1, "eagle3", draft=1.0 * k, head=1.0 * k) for k in (1, 2, 4, 8)]
    return Measurement(measured.setup, {p.task: p for p in points})


CHAIN = Line("eagle3", "chain", 1)


def test_the_formula(plain_numbers: Measurement) -> None:
    one = whatif.outcome(plain_numbers, CHAIN, 16, [0.5], whatif.Settings(2))
    assert one
    assert (one.draft, one.head, one.verify, one.host, one.plain) == (2.0, 2.0, 12.0, 0.0, 10.0)
    assert one.tau == 1.75
    assert one.speedup == pytest.approx(1.75 * 10 / 16)
    slow = whatif.outcome(plain_numbers, CHAIN, 16, [0.5], whatif.Settings(2, size=4))
    assert slow
    assert slow.speedup == pytest.approx(1.75 * 40 / (4 + 48))


def test_a_batch_makes_rows_and_rows_cost_what_the_target_says(plain_numbers: Measurement) -> None:
    one = whatif.outcome(plain_numbers, CHAIN, 16, [1.0], whatif.Settings(1, batch=4))
    assert one
    assert (one.plain, one.verify) == (13.0, 17.0)
    assert one.draft == pytest.approx(1.0 * 13 / 10)
    assert one.tau == 2.0


def test_losing_is_shown_and_not_clipped(plain_numbers: Measurement) -> None:
    steps = [whatif.outcome(plain_numbers, CHAIN, 16, [0.0], whatif.Settings(k)) for k in range(1, 32)]
    values = [step.speedup for step in steps if step]
    assert len(values) == 31
    assert max(values) < 1
    chart = charts.speedups({CHAIN: values}, 4)
    curve, best = drawn(chart)
    assert curve["y"] == values
    assert best["x"] == [1], "the best point is marked"
    low, high = json.loads(str(chart.figure.to_json()))["layout"]["yaxis"]["range"]
    assert (low, high > 1) == (0, True)


def test_what_was_not_measured_is_no_outcome(plain_numbers: Measurement) -> None:
    assert whatif.outcome(plain_numbers, Line("dflash", "block", 5), 16, [], whatif.Settings(2)) is None


def test_tau_of_rates() -> None:
    assert whatif.tau([], 5) == 1.0
    assert whatif.tau([0.5, 0.5], 2) == 1.75
    assert whatif.tau([0.5], 3) == pytest.approx(1.875), "the last rate goes on"
    assert whatif.rates([DepthCount(1, 20, 10), DepthCount(2, 9, 9)]) == [0.5]


def test_sliders_move_the_model() -> None:
    at = open_page("latency")
    before = figures(at)[3]["data"]
    at.toggle(key="guess").set_value(True).run()
    at.slider(key="rate").set_value(1.0).run()
    after = figures(at)[3]["data"]
    assert after != before
    at.select_slider(key="size").set_value(64).run()
    faster = figures(at)[3]["data"]
    assert all(max(new["y"]) >= max(old["y"]) for new, old in zip(faster, after, strict=True))
    at.slider(key="depth").set_value(1).run()
    assert {trace["name"] for trace in figures(at)[3]["data"] if trace["name"].startswith("DFlash")} == {
        "DFlash, 1-layer"
    }
    asked = {key: address(at)[key] for key in ("guess", "rate", "size", "depth")}
    assert asked == {"guess": "1", "rate": "1.00", "size": "64", "depth": "1"}
    assert figures(open_page("latency", **asked))[3]["data"] == figures(at)[3]["data"], "a link shows the same curves"


# ---- acceptance


def step_of(path: list[int], committed: int) -> Step:
    """Root with two guesses (q 0.6, 0.3), each with one below (q 0.9, 0.2)."""
    tree = DraftTree(
        [9, 1, 2, 3, 4], [-1, 0, 0, 1, 2], [-1, 0, 0, 1, 1], [1.0, 0.6, 0.3, 0.9, 0.2], [True] * 5, [0, 1, 2, 3, 4]
    )
    verdict = Verdict(path, 7, [1.0] * 5, [], [])
    return Step(tree, verdict, [], ([tree.tokens[node] for node in path[1:]] + [7])[:committed])


@pytest.fixture
def trace(shipped: Path) -> Trace:
    """A prefill, then: both favourites held; the second-best held and its child too; nothing held; cut after one."""
    header = load(shipped / "story.eagle3.published.jsonl.gz").header
    return Trace(
        header, [step_of([0], 1), step_of([0, 1, 3], 3), step_of([0, 2, 4], 3), step_of([0], 1), step_of([0, 1, 3], 1)]
    )


def test_favourites_are_what_a_chain_would_have_guessed(trace: Trace) -> None:
    assert whatif.favourites([trace]) == [DepthCount(1, 4, 2), DepthCount(2, 2, 2)]
    assert accepted_by_depth([trace]) == [DepthCount(1, 4, 3), DepthCount(2, 2, 2)]


def test_calibration_counts_guesses_whose_parent_held(trace: Trace) -> None:
    found = {round(b.mean, 3): (b.tested, b.accepted) for b in whatif.calibration([trace])}
    assert found == {0.2: (1, 1), 0.3: (4, 1), 0.6: (4, 2), 0.9: (1, 1)}


def test_the_sweep_marks_the_fastest_and_names_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:

    tried = [Tried("lookup", {"tokens": n}, n, 1.5, 10.0 * n, n / 4) for n in (2, 6, 4)]
    monkeypatch.setattr(findings, "read", lambda: Measured("D", "2026-01-01", {}, tried))
    at = open_page("latency")
    (trace,) = figures(at)[4]["data"]
    assert trace["marker"]["symbol"] == ["circle-open", "star", "circle-open"]
    assert "1.50×" in trace["text"][1]


def test_a_readers_run_has_a_cell_of_its_own_or_none() -> None:
    """A run at a recorded temperature, or of another target, must not change what was measured."""
    base = load(next(recorded.FOLDER.glob("*.eagle3.published.jsonl.gz")))

    def at(temperature: float, target: str = base.header.target.hash) -> Trace:
        sampling = msgspec.structs.replace(base.header.sampling, temperature=temperature)
        network = msgspec.structs.replace(base.header.target, hash=target)
        header = msgspec.structs.replace(base.header, sampling=sampling, target=network)
        return msgspec.structs.replace(base, header=header)

    assert findings.elsewhere(at(0.7), [base])
    assert not findings.elsewhere(at(0.0), [base])
    assert not findings.elsewhere(at(0.7, "another"), [base])
