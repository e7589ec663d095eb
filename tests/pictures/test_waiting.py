"""What waits for what: boxes are the passes as measured, stairs for chains and trees, one tall box for a block."""

from collections.abc import Mapping

import msgspec
import pytest

from pages.pictures import waiting
from pages.pictures.scene import Scene, Shape, Value, state
from spec_core.trace import Trace, depths


def say(key: str, values: Mapping[str, Value]) -> str:
    return f"{key} " + " ".join(f"{name}={value}" for name, value in values.items())


def of(traces: list[Trace], method: str) -> Trace:
    return next(t for t in traces if t.header.method.key == method)


@pytest.fixture(scope="module")
def both(traces: list[Trace]) -> tuple[Trace, Trace, Scene]:
    first, second = of(traces, "eagle3"), of(traces, "dflash")
    return first, second, waiting.picture(first, second, say)


def draft_boxes(scene: Scene, hue: str) -> list[Shape]:
    return [s for s in scene.shapes if s.look == "work draft" and s.hue == hue]


def test_the_two_drafts_continue_the_same_text(both: tuple[Trace, Trace, Scene]) -> None:
    first, second, _ = both
    a, b = waiting.meet(first, second)
    written = [sum(len(s.committed) for s in t.steps[:n]) for t, n in ((first, a), (second, b))]
    assert written[0] == written[1]
    assert first.steps[a].draft.tokens[0] == second.steps[b].draft.tokens[0]


def test_a_box_is_a_pass_to_scale_and_both_lanes_share_the_scale(both: tuple[Trace, Trace, Scene]) -> None:
    first, second, scene = both
    scales = set[float]()
    for trace, number in zip((first, second), waiting.meet(first, second), strict=True):
        passes = [one for one in trace.steps[number].passes if one.kind == "draft"]
        shapes = draft_boxes(scene, trace.header.method.key)
        assert len(shapes) == len(passes)
        scales |= {round(shape.w / one.ms, 3) for shape, one in zip(shapes, passes, strict=True) if shape.w > 1}
    assert len(scales) == 1


def test_a_chain_goes_down_in_stairs_and_a_block_is_one_box_over_all_places(both: tuple[Trace, Trace, Scene]) -> None:
    first, second, scene = both
    stairs = draft_boxes(scene, "eagle3")
    assert len(stairs) > 1
    for above, below in zip(stairs, stairs[1:], strict=False):
        assert below.y > above.y
        assert below.x >= above.x + above.w
    (tall,) = draft_boxes(scene, "dflash")
    number = waiting.meet(first, second)[1]
    places = max(depths(second.steps[number].draft))
    rows = [s for s in scene.shapes if s.id.startswith("dflash.n")]
    assert len(rows) == places
    assert tall.h == pytest.approx(stairs[0].h * places + 2 * (places - 1))


def test_recording_is_no_part_of_the_time(both: tuple[Trace, Trace, Scene]) -> None:
    step = both[1].steps[1]
    slow = [msgspec.structs.replace(one, ms=1e6) if one.kind == "record" else one for one in step.passes]
    assert any(one.kind == "record" for one in step.passes)
    assert waiting.drafting(msgspec.structs.replace(step, passes=slow)) == waiting.drafting(step)


def test_a_pass_whose_guesses_were_all_cut_away_keeps_its_place(traces: list[Trace]) -> None:
    tree = of(traces, "eagle3").steps[1].draft
    count = max(tree.passes) + 1
    rows = waiting.places(tree, count + 1)
    assert rows[count].start == rows[count - 1].stop
    assert len(rows[count]) == 1


def test_frames_follow_the_clock(both: tuple[Trace, Trace, Scene]) -> None:
    scene = both[2]
    shown = [state(scene, i)["now"].get("x", 0) for i in range(len(scene.frames) - 1)]
    assert shown == sorted(shown)
    kinds = [frame.kind for frame in scene.frames]
    assert kinds[0] == "begin"
    assert kinds[-1] == "compare"
    assert kinds.count("block") == 1


def test_the_last_frame_sums_up_both_drafts(both: tuple[Trace, Trace, Scene]) -> None:
    first, second, scene = both
    values = waiting.numbers(first, second)
    a, b = waiting.meet(first, second)
    assert values["ms1"] == f"{waiting.drafting(first.steps[a]):.1f}"
    assert values["passes2"] == values["heads2"] == 1
    assert values["places2"] == max(depths(second.steps[b].draft))
    assert f"ms2={values['ms2']}" in scene.frames[-1].say


def test_nothing_leaves_the_picture(both: tuple[Trace, Trace, Scene]) -> None:
    scene = both[2]
    for shape in scene.shapes:
        assert -1 <= shape.x <= scene.width
        assert shape.x + shape.w <= scene.width + 1
        assert shape.y + shape.h <= scene.height + 1


def test_any_two_methods_can_be_compared(traces: list[Trace]) -> None:
    drafted = [t for t in traces if t.header.drafter and len(t.steps) > 1]
    for first in drafted:
        scene = waiting.picture(first, drafted[-1], say)
        assert scene.frames[-1].kind == "compare"


@pytest.mark.parametrize("longest", [0.03, 0.9, 7.0, 28.6, 33.3, 480.0])
def test_the_axis_has_round_marks_and_not_too_many(longest: float) -> None:
    step = waiting.tick_step(longest)
    assert 2 <= longest / step <= 10
    assert float(f"{step:.0e}") == pytest.approx(step)
    assert f"{step:e}"[0] in "125"
