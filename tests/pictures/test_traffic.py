"""What is read for a step's tokens: boxes to the scale of the header's sizes, rows as recorded, totals that add up."""

from collections.abc import Mapping

import msgspec
import pytest

from pages.pictures import traffic
from pages.pictures.scene import Scene, Shape, Value, state, width
from spec_core.trace import Trace, accepted

Case = tuple[Trace, int, Scene]


def say(key: str, values: Mapping[str, Value]) -> str:
    return f"{key} {values.get('mb', '')}"


@pytest.fixture(scope="module")
def cases(traces: list[Trace]) -> list[Case]:
    """A step of every run that drafts; runs of the shipped size alone keep their labels short enough."""
    lively = [(t, max(range(1, len(t.steps)), key=lambda n: accepted(t.steps[n]))) for t in traces if len(t.steps) > 1]
    return [(trace, number, traffic.picture(trace, number, say)) for trace, number in lively]


def boxes(scene: Scene, start: str, look: str) -> list[Shape]:
    return [shape for shape in scene.shapes if shape.id.startswith(start) and look in shape.look]


def test_shape_names_are_unique(cases: list[Case]) -> None:
    for _, _, scene in cases:
        names = [shape.id for shape in scene.shapes]
        assert len(names) == len(set(names))


def test_a_pass_is_as_wide_as_the_weights_it_reads(cases: list[Case]) -> None:
    for trace, number, scene in cases:
        target = trace.header.target
        slices = boxes(scene, "drafted.0.", "weights")
        assert len(slices) == target.layers + 1
        scale = (slices[1].x - slices[0].x) / target.layer_weights
        head = slices[-1].w + traffic.SEAM
        assert head == pytest.approx(max(target.head_weights * scale, 0.5 + traffic.SEAM), rel=0.02)
        drafts = traffic.drafting(trace.steps[number], trace.header.drafter)
        for box, one in zip(boxes(scene, "drafted.d", "small"), drafts, strict=True):
            assert box.w == pytest.approx(max(2, one.weights * scale), rel=0.01)


def test_alone_every_token_costs_a_pass_and_drafted_all_cost_one(cases: list[Case]) -> None:
    for trace, number, scene in cases:
        layers = trace.header.target.layers
        count = len(trace.steps[number].committed)
        assert len(boxes(scene, "alone.", "weights")) == count * (layers + 1)
        assert len(boxes(scene, "drafted.", "weights")) == layers + 1
        for lane in ("alone", "drafted"):
            assert len(boxes(scene, f"{lane}.t", "written")) == count


def test_there_is_a_dot_for_every_row(cases: list[Case]) -> None:
    for trace, number, scene in cases:
        step = trace.steps[number]
        assert len(boxes(scene, "drafted.0.r", "row")) == len(step.draft.kept)
        drafted = [one.rows for one in step.passes if one.kind == "draft"]
        assert len(boxes(scene, "drafted.10", "row")) >= min(1, len(drafted))
        assert len(boxes(scene, "alone.0.r", "row")) == 1


def test_the_drafters_own_tokens_wear_its_hue(cases: list[Case]) -> None:
    for trace, number, scene in cases:
        step = trace.steps[number]
        written = boxes(scene, "drafted.t", "written")
        own = len(step.verdict.path) - 1
        assert [bool(chip.hue) for chip in written] == [i < own for i in range(len(written))]
        assert not any(chip.hue for chip in boxes(scene, "alone.t", "written"))


def test_numbers_are_the_headers(cases: list[Case]) -> None:
    for trace, number, _ in cases:
        found, target = traffic.numbers(trace, number), trace.header.target
        megabytes = (target.layers * target.layer_weights + target.head_weights) * 4 / 1e6
        assert found["mb"] == f"{megabytes:.0f}"
        assert found["alone"] == f"{len(trace.steps[number].committed) * megabytes:.0f}"


def test_half_precision_reads_half_as_much(cases: list[Case]) -> None:
    header = cases[0][0].header
    assert traffic.megabytes(1e6, header, header.target) == 4.0
    assert traffic.megabytes(1e6, msgspec.structs.replace(header, dtype="bfloat16"), header.target) == 2.0


def test_weights_read_in_few_bits_are_drawn_as_they_are_read(cases: list[Case]) -> None:
    head = cases[0][0].header
    coded = msgspec.structs.replace(head.target, bytes_each=0.75)
    assert traffic.megabytes(1e6, msgspec.structs.replace(head, dtype="float32 (few bits)"), coded) == 0.75


def test_everything_has_come_up_at_the_end_and_fits(cases: list[Case]) -> None:
    for _, _, scene in cases:
        last = state(scene, len(scene.frames) - 1)
        assert all(last[shape.id].get("on") for shape in scene.shapes)
        for shape in scene.shapes:
            assert shape.y + shape.h <= scene.height
            if shape.look.startswith("chip"):
                assert width(shape.label, shape.size) <= shape.w


def test_the_kinds_a_lesson_looks_for_are_there(cases: list[Case]) -> None:
    for _, _, scene in cases:
        kinds = [frame.kind for frame in scene.frames]
        assert kinds[0] == "read"
        assert kinds[-3:] == ["guess", "check", "total"]
