"""Texts side by side: every token of every run once, hue where it was guessed, ✕ where it is another than plain's."""

from collections.abc import Mapping

import msgspec
import pytest

from pages.pictures import same
from pages.pictures.scene import Scene, Value, state, width
from spec_core.trace import Trace, accepted, ids


def say(key: str, values: Mapping[str, Value]) -> str:
    return str(values.get("title", key))


@pytest.fixture(scope="module")
def greedy(traces: list[Trace]) -> list[Trace]:
    """One run a method."""
    return list({trace.header.method.key: trace for trace in reversed(traces)}.values())


@pytest.fixture(scope="module")
def scene(greedy: list[Trace]) -> Scene:
    return same.picture(greedy, say)


def test_every_token_of_every_run_is_a_chip_and_a_cell(greedy: list[Trace], scene: Scene) -> None:
    names = {shape.id for shape in scene.shapes}
    assert len(names) == len(scene.shapes)
    for row in range(len(greedy)):
        for place in range(len(ids(greedy[0]))):
            assert {f"t{row}.{place}", f"c{row}.{place}"} <= names


def test_guessed_tokens_are_those_that_were_accepted(greedy: list[Trace]) -> None:
    for run in greedy:
        assert sum(same.drafted(run)) == sum(map(accepted, run.steps))
        assert len(same.drafted(run)) == len(ids(run))


def test_equal_texts_are_all_ticks_and_end_as_equal(scene: Scene) -> None:
    marks = {shape.mark for shape in scene.shapes if shape.look.startswith("chip")}
    assert marks == {"", "✓"}
    assert scene.frames[-1].kind == "equal"


def test_a_run_that_departs_is_marked_and_no_moment_of_equality_is_found(greedy: list[Trace]) -> None:
    last = greedy[-1].steps[-1]
    other = msgspec.structs.replace(last, committed=[(last.committed[0] + 1) % 100, *last.committed[1:]])
    spoilt = Trace(greedy[-1].header, [*greedy[-1].steps[:-1], other])
    scene = same.picture([*greedy[:-1], spoilt], say)
    assert scene.frames[-1].kind == "differs"
    assert "✕" in {shape.mark for shape in scene.shapes}


def test_each_window_replaces_the_last_and_strips_stay(greedy: list[Trace], scene: Scene) -> None:
    tokens = len(ids(greedy[0]))
    for number in range(len(scene.frames) - 1):
        now = {name for name, change in state(scene, number).items() if change.get("on")}
        first, last = number * same.WINDOW, min((number + 1) * same.WINDOW, tokens)
        assert {name for name in now if name[0] == "t"} == {
            f"t{row}.{i}" for row in range(len(greedy)) for i in range(first, last)
        }
        assert sum(name[0] == "c" for name in now) == last * len(greedy)


def test_labels_fit_and_nothing_leaves_the_picture(scene: Scene) -> None:
    for shape in scene.shapes:
        assert shape.x + shape.w <= scene.width + 0.1
        assert shape.y + shape.h <= scene.height
        if shape.look.startswith("chip"):
            assert width(shape.label, shape.size) <= shape.w - 20


def test_without_a_plain_run_there_is_nothing_to_compare_with(greedy: list[Trace]) -> None:
    with pytest.raises(ValueError, match="no plain run"):
        same.picture([run for run in greedy if run.header.drafter], say)
