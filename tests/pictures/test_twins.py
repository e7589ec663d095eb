"""Two drafts of one place: the same text behind both, looks that are their verdicts, the longest and the broadest."""

from collections.abc import Mapping

import pytest

from pages.pictures import twins
from pages.pictures.scene import Scene, Value, state
from spec_core.trace import Trace, ids

Pair = tuple[Trace, Trace]


def say(key: str, values: Mapping[str, Value]) -> str:
    return f"{key} " + " ".join(f"{name}={value}" for name, value in values.items())


@pytest.fixture(scope="module")
def pair(traces: list[Trace]) -> Pair:
    """Two tree drafters on one prompt, greedy, so that their texts are the same."""
    trees = [trace for trace in traces if trace.header.knobs.get("shape") == "tree"]
    by_size = {(trace.header.method.key, trace.header.knobs.get("tokens")): trace for trace in trees}
    return by_size["eagle", None], by_size["eagle2", 59]


@pytest.fixture(scope="module")
def scene(pair: Pair) -> Scene:
    return twins.picture(pair, say)


def test_both_stand_behind_the_same_text(pair: Pair) -> None:
    found = twins.places(pair)
    assert len(found) > 1
    for place in found:
        texts = {tuple(before(trace, number)) for trace, number in zip(pair, place.steps, strict=True)}
        assert len(texts) == 1
        assert len(texts.pop()) == place.position


def before(trace: Trace, number: int) -> list[int]:
    return [token for step in trace.steps[:number] for token in step.committed]


def test_texts_that_have_parted_share_no_place(pair: Pair) -> None:
    """From a different token on nothing is comparable, though the counts may meet again."""
    first, second = pair
    other = Trace(second.header, [second.steps[0], *second.steps[2:]], second.end)
    assert all(ids(first)[: p.position] == ids(other)[: p.position] for p in twins.places((first, other)))


def test_the_places_are_the_longest_and_the_broadest(pair: Pair) -> None:
    long, broad = twins.extremes(pair)
    late = [place for place in twins.places(pair) if place.position > twins.SOME]
    reaches = [twins.reach(pair[1].steps[place.steps[1]].draft) for place in late]
    assert twins.reach(pair[1].steps[long.steps[1]].draft) == max(reaches)
    assert twins.reach(pair[1].steps[broad.steps[1]].draft) == min(reaches)


def test_looks_in_the_end_are_the_verdicts(pair: Pair, scene: Scene) -> None:
    for kind, place in zip(("long", "broad"), twins.extremes(pair), strict=True):
        frame = next(i for i, frame in enumerate(scene.frames) if frame.kind == f"{kind}end")
        now = state(scene, frame)
        for side, (trace, number) in enumerate(zip(pair, place.steps, strict=True)):
            step, name = trace.steps[number], f"{kind}{side}.n"
            accepted = {i for i in step.draft.kept[1:] if "accepted" in str(now[f"{name}{i}"]["look"])}
            assert accepted == set(step.verdict.path[1:])
            assert all(now[f"{name}{i}"]["on"] for i in step.draft.kept)


def test_halves_stay_apart_and_inside(scene: Scene) -> None:
    middle = twins.WIDTH / 2
    for shape in (shape for shape in scene.shapes if shape.kind == "rect"):
        left = shape.id.split(".")[0].endswith("0")
        assert (shape.x + shape.w < middle) if left else (shape.x > middle)
        assert shape.x >= 0
        assert shape.x + shape.w <= scene.width
        assert shape.y + shape.h <= scene.height


def test_what_sentences_say_is_counted(pair: Pair) -> None:
    found = twins.compared(pair)
    assert (found["one_nodes"], found["two_nodes"]) == (25, 59)
    assert (found["one_passes"], found["two_passes"]) == (5, 6)
