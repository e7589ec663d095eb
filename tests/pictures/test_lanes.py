"""The race picture as data: one axis, everybody's tokens, the same text, and clocks that add up."""

from collections.abc import Mapping

import msgspec
import pytest

from pages.pictures.lanes import CLOCKS, WIDTH, Clock, duration, legs, lost, picture, speedup
from pages.pictures.scene import Value, state, width
from spec_core.trace import Trace, decode_ms


def say(key: str, values: Mapping[str, Value]) -> str:
    return f"{key} " + " ".join(map(str, values.values()))


@pytest.mark.parametrize("clock", CLOCKS)
def test_at_the_end_every_token_of_every_lane_is_there(traces: list[Trace], clock: Clock) -> None:
    scene = picture(traces, clock, say)
    now = state(scene, len(scene.frames) - 1)
    by_name = {shape.id: shape for shape in scene.shapes}
    dots = [name for name, change in now.items() if change.get("on") and by_name[name].kind == "dot"]
    assert len(dots) == sum(len(step.committed) for trace in traces for step in trace.steps[1:])
    assert sum(name.endswith(".done") and bool(change.get("on")) for name, change in now.items()) == len(traces)


@pytest.mark.parametrize("clock", CLOCKS)
def test_nothing_is_shown_before_its_time(traces: list[Trace], clock: Clock) -> None:
    scene = picture(traces, clock, say)
    shapes = {shape.id: shape for shape in scene.shapes}
    for position in range(0, len(scene.frames), 10):
        now = state(scene, position)
        edge = float(now["now"]["x"])
        for name, change in now.items():
            if change.get("on") and "time" in shapes[name].look:
                assert shapes[name].x <= edge + 0.2


@pytest.mark.parametrize("clock", CLOCKS)
def test_shapes_stay_inside(traces: list[Trace], clock: Clock) -> None:
    scene = picture(traces, clock, say)
    for shape in scene.shapes:
        assert shape.x >= -1, shape.id
        assert shape.x + shape.w <= WIDTH + 1, shape.id
    for position in (0, 45, 90):
        for change in state(scene, position).values():
            if "label" in change and "x" not in change:
                assert width(str(change["label"]), 13) <= WIDTH


def test_measured_clock_is_the_decode_time(traces: list[Trace]) -> None:
    for trace in traces:
        assert duration(trace, "ms") == pytest.approx(decode_ms(trace))


def test_passes_clock_counts_steps(traces: list[Trace]) -> None:
    for trace in traces:
        assert duration(trace, "passes") == len(trace.steps) - 1


def test_model_clock_charges_every_dependent_pass(traces: list[Trace]) -> None:
    """A chain of K costs K passes and K heads; a block costs one pass of all its layers and one head."""
    by_key = {(t.header.method.key, t.header.knobs.get("shape"), t.header.knobs.get("block")): t for t in traces}
    chain = by_key["eagle3", "chain", None]
    block = by_key["dflash", None, 32]
    for trace, passes, layers in ((chain, 4, 1), (block, 1, 5)):
        target, drafter = trace.header.target, trace.header.drafter
        assert drafter
        layers = min(layers, drafter.layers)
        whole = target.layers * target.layer_weights + target.head_weights
        leg = legs(trace, "model")[0]
        assert leg.parts["draft"] == pytest.approx(passes * layers * drafter.layer_weights / whole)
        assert leg.parts["head"] == pytest.approx(passes * drafter.head_weights / whole)
        assert leg.parts["target"] == 1


def test_plain_is_its_own_yardstick(traces: list[Trace]) -> None:
    for clock in CLOCKS:
        assert speedup(traces[0], traces[0], clock) == pytest.approx(1)


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_losing_lane_says_why_once_it_is_done_and_a_winning_one_does_not(traces: list[Trace], clock: Clock) -> None:
    scene = picture(traces, clock, say)
    last = state(scene, len(scene.frames) - 1)
    said = {shape.id for shape in scene.shapes if shape.id.endswith(".why")}
    losing = [i for i, trace in enumerate(traces) if speedup(trace, traces[0], clock) < 0.995]
    assert {name.split(".")[1] for name in said} == set(map(str, losing))
    assert all(last[name]["on"] for name in said)
    assert not said & set(state(scene, 0))


def test_the_reason_is_the_work_that_adds_most_to_a_step(traces: list[Trace]) -> None:
    plain, chain = traces[0], next(t for t in traces if t.header.knobs.get("shape") == "chain")
    found = lost(chain, plain, "model")
    assert found
    assert found[0] in ("draft", "head")  # on that clock a target pass costs the same as plain's
    assert lost(plain, plain, "model") is None


def test_the_same_text_is_claimed_of_lanes_that_have_it_and_of_no_other(traces: list[Trace]) -> None:
    def claims(shown: list[Trace]) -> list[str]:
        return [s.id for s in picture(shown, "passes", say).shapes if s.id.endswith(".result") and "same" in s.label]

    plain, other = traces[0], traces[1]
    step = other.steps[1]
    spoilt = msgspec.structs.replace(step, committed=[step.committed[0] ^ 1, *step.committed[1:]])
    wrong = msgspec.structs.replace(other, steps=[other.steps[0], spoilt, *other.steps[2:]])
    assert claims([plain, other]) == [f"{other.header.method.key}.1.result"]
    assert claims([plain, wrong]) == []


def busy(trace: Trace) -> Trace:
    head = msgspec.structs.replace(trace.header, contended=True)
    return Trace(head, trace.steps, trace.end)


def test_a_run_on_a_busy_device_is_compared_by_work_and_not_by_time(traces: list[Trace]) -> None:
    for clock in CLOCKS:
        labels = [shape.label for shape in picture([*map(busy, traces)], clock, say).shapes if shape.id.endswith("tau")]
        assert any("lane.speed" in label for label in labels) == (clock != "ms")
        assert any("lane.speed" in s.label for s in picture(traces, clock, say).shapes if s.id.endswith("tau"))
    assert not any(lost(trace, busy(traces[0]), "ms") for trace in traces)


def test_a_lane_is_compared_with_plain_decoding_of_its_own_prompt_only(traces: list[Trace]) -> None:
    def head(trace: Trace, ids: list[int]) -> Trace:
        prompt = msgspec.structs.replace(trace.header.prompt, ids=ids)
        return msgspec.structs.replace(trace, header=msgspec.structs.replace(trace.header, prompt=prompt))

    def compared(shown: list[Trace]) -> list[bool]:
        labels = {shape.id: shape.label for shape in picture(shown, "passes", say).shapes}
        return ["lane.speed" in label for name, label in labels.items() if name.endswith(".tau")]

    plain, other = traces[0], traces[1]
    assert compared([plain, other]) == [True, True]
    assert compared([plain, head(other, [1, 2, 3])]) == [True, False]
