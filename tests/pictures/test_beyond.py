"""The text by origin: every token once, in order, and a mark on those outside the drafter's vocabulary."""

from collections.abc import Mapping

from pages.pictures import beyond
from pages.pictures.scene import Value, state
from pages.pictures.step import spell
from spec_core.trace import Trace, accepted, words


def say(key: str, values: Mapping[str, Value]) -> str:
    return f"{key} " + " ".join(f"{name}={value}" for name, value in values.items())


def test_the_whole_text_stands_there_in_order(traces: list[Trace]) -> None:
    for trace in traces:
        scene = beyond.picture(trace, say)
        text = [token for step in trace.steps[1:] for token in step.committed]
        assert [shape.label for shape in scene.shapes] == [spell(words(trace)[token]) for token in text]
        assert [(s.y, s.x) for s in scene.shapes] == sorted((s.y, s.x) for s in scene.shapes)
        assert all(shape.x + shape.w <= scene.width for shape in scene.shapes)


def test_marks_are_on_what_the_drafter_has_no_word_for(traces: list[Trace]) -> None:
    marked = 0
    for trace in traces:
        scene = beyond.picture(trace, say)
        now = state(scene, 1)
        names = {name for name, change in now.items() if change.get("mark")}
        assert len(names) == beyond.beyond(trace)
        assert bool(names) <= bool(trace.header.drafter and trace.header.drafter.own_head)
        for shape in scene.shapes:
            number, place = map(int, shape.id[1:].split("."))
            step = trace.steps[number]
            assert (shape.id in names) == (step.committed[place] in step.beyond)
            assert ("drafted" in shape.look) == (place < accepted(step))
            assert not (shape.id in names and "drafted" in shape.look)
        marked += len(names)
    assert marked
