"""The inside of a draft: sizes are the header's, guesses the tree's, and what is fed back is what was guessed."""

from collections.abc import Mapping

import pytest

from pages.pictures import flow
from pages.pictures.scene import Scene, Value, state, width
from pages.pictures.step import spell
from spec_core.trace import Trace, accepted, depths, words

Case = tuple[Trace, int, Scene]


def say(key: str, values: Mapping[str, Value]) -> str:
    return f"{key} " + " ".join(f"{name}={value}" for name, value in values.items())


@pytest.fixture(scope="module")
def cases(traces: list[Trace]) -> list[Case]:
    """Every kind of drafter that goes from guess to guess."""
    drafted = [trace for trace in traces if trace.header.drafter and len(trace.steps) > 1]
    numbers = [(trace, flow.liveliest(trace)) for trace in drafted]
    chains = [(t, n) for t, n in numbers if max(t.steps[n].draft.passes) or max(depths(t.steps[n].draft)) == 1]
    assert len({trace.header.method.key for trace, _ in chains}) >= 3
    return [(trace, number, flow.picture(trace, number, say)) for trace, number in chains]


def test_shape_names_are_unique(cases: list[Case]) -> None:
    for _, _, scene in cases:
        names = [shape.id for shape in scene.shapes]
        assert len(names) == len(set(names))


def test_the_step_is_the_first_of_those_where_most_held(traces: list[Trace]) -> None:
    for trace in traces:
        number = flow.liveliest(trace)
        late = [n for n in range(1, len(trace.steps)) if len(trace.steps) - 1 == n or written(trace, n) > flow.READ]
        assert accepted(trace.steps[number]) == max(accepted(trace.steps[n]) for n in late)


def written(trace: Trace, number: int) -> int:
    return sum(len(step.committed) for step in trace.steps[:number])


def test_the_last_sure_token_is_the_root(cases: list[Case]) -> None:
    for trace, number, scene in cases:
        newest = next(shape for shape in scene.shapes if "newest" in shape.look)
        root = trace.steps[number].draft.tokens[0]
        assert newest.label == spell(words(trace)[root])


def test_as_many_target_layers_are_marked_as_are_lent(cases: list[Case]) -> None:
    for trace, _, scene in cases:
        assert trace.header.drafter
        marked = [shape for shape in scene.shapes if shape.id.startswith("k") and "bracket tap" in shape.look]
        assert [int(shape.id[1:]) for shape in marked] == [tap for tap in trace.header.drafter.taps if tap]
        fused = any(frame.kind == "fuse" for frame in scene.frames)
        assert fused == (len(trace.header.drafter.taps) > 1)


def test_features_and_embeddings_are_shifted_by_one(cases: list[Case]) -> None:
    """After the shift, row i holds the feature of token i and the embedding of token i + 1."""
    for _, _, scene in cases:
        frame = next(i for i, frame in enumerate(scene.frames) if frame.kind == "shift")
        now = state(scene, frame)
        shapes = {shape.id: shape for shape in scene.shapes}
        for row in range(flow.READ):
            embedding = shapes[f"e{row + 1}"]
            assert now[embedding.id]["y"] == shapes[f"f{row}.0"].y
            assert embedding.label == shapes[f"t{row + 1}"].label


def test_every_pass_after_the_first_reads_what_the_last_one_guessed(cases: list[Case]) -> None:
    for trace, number, scene in cases:
        tree = trace.steps[number].draft
        way = flow.favourites(tree, flow.PASSES)
        shapes = {shape.id: shape for shape in scene.shapes}
        for index, node in enumerate(way):
            below = [i for i, parent in enumerate(tree.parents) if parent == tree.parents[node]]
            assert tree.probs[node] == max(tree.probs[i] for i in below)
            assert shapes[f"g{index}"].note == f"{tree.probs[node]:.2f}".lstrip("0")
            if index + 1 < len(way):
                fed = shapes[f"e{flow.READ + index + 1}"]
                assert fed.label.rstrip("…") == shapes[f"g{index}"].label.rstrip("…")
                assert fed.y == shapes[f"o{index + 1}.0"].y == shapes[f"u{index + 1}.0"].y


def test_sentences_name_the_runs_own_sizes(cases: list[Case]) -> None:
    for trace, _, scene in cases:
        drafter = trace.header.drafter
        assert drafter
        head = next(frame for frame in scene.frames if frame.kind == "head").say
        assert f"words={drafter.vocab} " in head
        assert head.startswith("flow.head.own ") == drafter.own_head


def test_what_depends_on_what_is_counted_from_the_passes(cases: list[Case]) -> None:
    for trace, number, scene in cases:
        kinds = [one.kind for one in trace.steps[number].passes]
        assert f"passes={kinds.count('draft')} heads={kinds.count('head')}" in scene.frames[-1].say


def test_nothing_stands_outside_or_overflows(cases: list[Case]) -> None:
    for _, _, scene in cases:
        for shape in scene.shapes:
            if shape.kind == "rect":
                assert shape.x >= 0
                assert shape.x + shape.w <= scene.width + 0.1
                assert shape.y + shape.h <= scene.height + 0.1
            if shape.kind == "rect" and shape.label:
                room = shape.w - (19 + width(shape.note, shape.size * 0.82) if shape.note else 7)
                assert width(shape.label, shape.size) <= room + 1
