"""The step picture as data: every node once, fates that match the verdict, nothing out of bounds or overflowing."""

from collections.abc import Mapping

import pytest

from pages.pictures.scene import Scene, Shape, Value, state, width
from pages.pictures.step import WIDTH, picture, spell, timeline
from spec_core.trace import Trace, accepted


def say(key: str, values: Mapping[str, Value]) -> str:
    return f"{key} " + " ".join(f"{name}={value}" for name, value in values.items())


@pytest.fixture(scope="module")
def scenes(traces: list[Trace]) -> list[tuple[Trace, Scene]]:
    return [(trace, picture(trace, say)) for trace in traces]


def step_end(scene: Scene, number: int) -> int:
    """The last frame of a step."""
    return max(i for i, frame in enumerate(scene.frames) if frame.at == number)


def test_shape_names_are_unique(scenes: list[tuple[Trace, Scene]]) -> None:
    for _, scene in scenes:
        names = [shape.id for shape in scene.shapes]
        assert len(names) == len(set(names))


def test_every_node_of_every_step_is_drawn_once(scenes: list[tuple[Trace, Scene]]) -> None:
    for trace, scene in scenes:
        names = {shape.id for shape in scene.shapes}
        for number, step in enumerate(trace.steps[1:], 1):
            wanted = {f"s{number}.n{i}" for i in range(len(step.draft.tokens))}
            assert wanted <= names
            assert not any(name.startswith(f"s{number}.n") for name in names - wanted)


def test_looks_at_the_end_of_a_step_are_the_verdict(scenes: list[tuple[Trace, Scene]]) -> None:
    for trace, scene in scenes:
        for number, step in enumerate(trace.steps[1:], 1):
            now = state(scene, step_end(scene, number))
            looks = {i: str(now[f"s{number}.n{i}"].get("look", "")) for i in range(1, len(step.draft.tokens))}
            assert {i for i, look in looks.items() if "accepted" in look} == set(step.verdict.path[1:])
            pruned = set(range(len(step.draft.tokens))) - set(step.draft.kept)
            assert {i for i, look in looks.items() if "pruned" in look} == pruned
            last = step.verdict.path[-1]
            tested = {i for i in step.draft.kept[1:] if step.draft.parents[i] == last}
            assert {i for i, look in looks.items() if "rejected" in look} == tested
            assert now[f"s{number}.bonus"]["on"]


def test_a_step_leaves_the_stage_when_the_next_begins(scenes: list[tuple[Trace, Scene]]) -> None:
    for trace, scene in scenes:
        for number in range(1, len(trace.steps)):
            now = state(scene, step_end(scene, number))
            alive = {name.split(".")[0] for name, change in now.items() if change.get("on") and name[0] == "s"}
            assert alive == {f"s{number}"}


def test_frames_replay_to_the_same_state_from_any_start(scenes: list[tuple[Trace, Scene]]) -> None:
    """Step by step from the first frame, or at once: the stage does both."""
    for _, scene in scenes:
        now: dict[str, dict[str, Value]] = {}
        for position, frame in enumerate(scene.frames):
            for name, change in frame.set.items():
                now[name] = now.get(name, {}) | change
            if position % 7 == 0 or position == len(scene.frames) - 1:
                assert now == state(scene, position)


def test_the_tape_ends_with_the_committed_tokens(scenes: list[tuple[Trace, Scene]]) -> None:
    for trace, scene in scenes:
        by_name = {shape.id: shape for shape in scene.shapes}
        count = 0
        for step in trace.steps:
            for place in range(len(step.committed)):
                drafted = "drafted" in by_name[f"t{count}"].look
                assert drafted == (place < accepted(step))
                count += 1
        assert f"t{count}" not in by_name


def test_newest_tape_token_is_in_view_and_no_token_hangs_out(scenes: list[tuple[Trace, Scene]]) -> None:
    for _, scene in scenes:
        widths = {shape.id: shape.w for shape in scene.shapes}
        for position, frame in enumerate(scene.frames):
            if not frame.stop:
                continue
            tape = {name: change for name, change in state(scene, position).items() if name[0] == "t"}
            newest = max(tape, key=lambda name: int(name[1:]))
            assert tape[newest]["on"]
            for name, change in tape.items():
                if change["on"]:
                    assert float(change["x"]) >= 0
                    assert float(change["x"]) + widths[name] <= WIDTH + 1


def placed(scene: Scene) -> list[Shape]:
    return [s for s in scene.shapes if s.kind == "rect" and s.id[0] == "s" and "bracket" not in s.look]


def test_everything_is_inside_the_picture(scenes: list[tuple[Trace, Scene]]) -> None:
    for _, scene in scenes:
        for shape in placed(scene):
            assert min(shape.x, shape.y) >= 0, shape.id
            assert shape.x + shape.w <= WIDTH + 0.5, shape.id
            assert shape.y + shape.h <= scene.height + 0.5, shape.id


def test_nodes_of_a_step_do_not_overlap(scenes: list[tuple[Trace, Scene]]) -> None:
    for trace, scene in scenes:
        for number in range(1, len(trace.steps)):
            boxes = [s for s in placed(scene) if s.id.startswith((f"s{number}.n", f"s{number}.l"))]
            for i, a in enumerate(boxes):
                for b in boxes[i + 1 :]:
                    apart = a.x + a.w <= b.x or b.x + b.w <= a.x or a.y + a.h <= b.y + 0.1 or b.y + b.h <= a.y + 0.1
                    assert apart, (a.id, b.id)


def test_labels_fit_their_boxes(scenes: list[tuple[Trace, Scene]]) -> None:
    for _, scene in scenes:
        for shape in placed(scene):
            if shape.label:
                room = shape.w - (width(shape.note, shape.size * 0.82) if shape.note else 0)
                assert width(shape.label, shape.size) <= room, shape.id


def test_headings_count_the_draft_passes(scenes: list[tuple[Trace, Scene]]) -> None:
    for trace, scene in scenes:
        names = {shape.id for shape in scene.shapes}
        for number, step in enumerate(trace.steps[1:], 1):
            passes = {p for p in step.draft.passes if p >= 0}
            assert {name for name in names if name.startswith(f"s{number}.hl")} == {f"s{number}.hl{p}" for p in passes}


def test_timeline_is_to_scale_and_leaves_recording_out(traces: list[Trace]) -> None:
    for trace in traces:
        for step in trace.steps[1:]:
            bars = timeline(step, 1000.0, step.ms)
            assert "record" not in {bar.kind for bar in bars}
            for bar in bars:
                assert bar.w == pytest.approx(max(0.5, 1000 * bar.ms / step.ms), abs=0.02)
            assert sum(bar.ms for bar in bars) == pytest.approx(step.ms)


def test_every_pass_of_a_step_reaches_the_timeline(scenes: list[tuple[Trace, Scene]]) -> None:
    for trace, scene in scenes:
        for number, step in enumerate(trace.steps[1:], 1):
            now = state(scene, step_end(scene, number))
            shown = {name for name, change in now.items() if name.startswith(f"s{number}.p") and change.get("on")}
            assert shown == {f"s{number}.p{i}" for i, one in enumerate(step.passes) if one.kind != "record"}


def test_tokens_are_spelled_so_that_they_can_be_seen() -> None:
    assert spell(" the") == "the"
    assert spell("\n\n") == "⏎⏎"
    assert spell("  ") == "␣␣"
    assert spell([0xF0, 0x9F]) == "<F0 9F>"


def test_bars_pair_p_and_q_of_the_same_place(scenes: list[tuple[Trace, Scene]]) -> None:
    for trace, scene in scenes:
        for number, step in enumerate(trace.steps[1:], 1):
            for i in step.verdict.path[1:]:
                rows = scene.bars[f"s{number}.b{step.draft.parents[i]}"].rows
                p = step.verdict.p[step.draft.kept.index(i)]
                assert any(row[1] == pytest.approx(p, rel=1e-3) for row in rows)


def test_the_bonus_covers_no_node(scenes: list[tuple[Trace, Scene]]) -> None:
    for trace, scene in scenes:
        for number in range(1, len(trace.steps)):
            boxes = [s for s in placed(scene) if s.id.startswith((f"s{number}.n", f"s{number}.l"))]
            star = next(s for s in scene.shapes if s.id == f"s{number}.bonus")
            for b in boxes:
                apart = star.x + star.w <= b.x or b.x + b.w <= star.x or star.y + star.h <= b.y or b.y + b.h <= star.y
                assert apart, (trace.header.method.key, number, b.id)


def test_a_run_of_small_drafts_gets_a_lower_picture(scenes: list[tuple[Trace, Scene]]) -> None:
    bushiest = [max(len(step.draft.tokens) for step in trace.steps[1:]) for trace, _ in scenes]
    low, high = (scenes[bushiest.index(pick(bushiest))][1].height for pick in (min, max))
    assert low < high
