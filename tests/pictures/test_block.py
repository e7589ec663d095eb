"""Inside a block: slots, layers and context are the recorded step's, and guesses change as they were recorded to."""

from collections.abc import Mapping

import pytest

from pages.pictures import block
from pages.pictures.scene import Scene, Value, state
from spec_core.methods import discover
from spec_core.run import Request, chat_prompt, collect, run
from spec_core.trace import Trace
from tests.toy import talking_model, toy_networks


def say(key: str, values: Mapping[str, Value]) -> str:
    return f"{key} " + " ".join(f"{name}={value}" for name, value in values.items())


@pytest.fixture(scope="module")
def trace() -> Trace:
    model, method = talking_model(), discover()["dflash"]
    request = Request(method, chat_prompt(model, "Zähle: 一二三 🙂"), {"block": 8, "guesses": True}, budget=20)
    return collect(run(model, toy_networks(model)[method.network], request))


@pytest.fixture(scope="module")
def case(trace: Trace) -> tuple[Trace, int, Scene]:
    return trace, 2, block.picture(trace, 2, say)


def shown(scene: Scene, kind: str) -> set[str]:
    place = max(i for i, frame in enumerate(scene.frames) if frame.kind == kind)
    return {name for name, change in state(scene, place).items() if change.get("on")}


def test_there_is_a_mask_for_every_guess(case: tuple[Trace, int, Scene]) -> None:
    trace, number, scene = case
    count = len(trace.steps[number].draft.tokens) - 1
    assert len([s for s in scene.shapes if s.look == "node mask"]) == count
    assert {f"slot{i}" for i in range(count + 1)} <= shown(scene, "masks")


def test_every_layer_gets_the_context(case: tuple[Trace, int, Scene]) -> None:
    trace, number, scene = case
    depth = next(one.layers for one in trace.steps[number].passes if one.kind == "draft")
    assert len([s for s in scene.shapes if s.look == "arrow back injected"]) == depth
    assert {f"{part}{layer}" for part in ("old", "new") for layer in range(depth)} <= shown(scene, "inject")


def test_kept_and_new_context_are_all_the_target_has_read(trace: Trace) -> None:
    """A step's new rows are what the step before committed; at the first, the prompt's last, whose others were read
    in the prefill."""
    read = len(trace.header.prompt.ids)
    for number in range(1, len(trace.steps)):
        values = block.numbers(trace, number)
        assert values["new"] == len(trace.steps[number - 1].committed)
        assert values["past"] == read - int(values["new"])
        assert values["sure"] == read
        read += len(trace.steps[number].committed)


def test_cells_hold_what_each_layer_guessed_and_say_whether_it_lasts(case: tuple[Trace, int, Scene]) -> None:
    trace, number, scene = case
    tree, cells = trace.steps[number].draft, {s.id: s for s in scene.shapes}
    assert tree.layers
    for layer, guesses in enumerate(tree.layers):
        for slot, token in enumerate(guesses, 1):
            final = token == tree.tokens[slot]
            assert cells[f"c{layer}.{slot}"].look == ("node pending final" if final else "node lost other")
    last = len(tree.layers) - 1
    assert all(cells[f"c{last}.{slot}"].look == "node pending final" for slot in range(1, len(tree.tokens)))


def test_layers_come_in_turn_and_the_head_once(case: tuple[Trace, int, Scene]) -> None:
    kinds = [frame.kind for frame in case[2].frames]
    depth = next(one.layers for one in case[0].steps[case[1]].passes if one.kind == "draft")
    start = ["text", "masks", "feature", "inject", "cache"]
    assert kinds == [*start, *["layer"] * (depth - 1), "last", "head"]


def test_names_are_unique_and_nothing_leaves_the_picture(trace: Trace) -> None:
    for number in range(1, len(trace.steps)):
        scene = block.picture(trace, number, say)
        names = [s.id for s in scene.shapes]
        assert len(names) == len(set(names))
        for shape in scene.shapes:
            assert shape.x >= 0
            assert shape.x + shape.w <= scene.width
            assert shape.y + shape.h <= scene.height


def test_without_recorded_layers_only_the_last_row_is_filled(traces: list[Trace]) -> None:
    trace = next(t for t in traces if t.header.method.key == "dflash")
    assert not trace.steps[1].draft.layers
    scene = block.picture(trace, 1, say)
    depth = next(one.layers for one in trace.steps[1].passes if one.kind == "draft")
    filled = {s.id.split(".")[0] for s in scene.shapes if s.look in ("node pending final", "node lost other")}
    assert filled == {f"c{depth - 1}"}


@pytest.mark.parametrize("w", [10.0, 44.0, 110.0])
def test_hatching_stays_in_its_box(w: float) -> None:
    points = block.hatch(5, 7, w, 27).replace("M", " ").replace("L", " ").split()
    xs, ys = [float(p) for p in points[::2]], [float(p) for p in points[1::2]]
    assert min(xs) >= 5
    assert max(xs) <= 5 + w
    assert min(ys) >= 7
    assert max(ys) <= 34
