"""A tree's growth as data: every candidate once, values that are products, a ranking in order, the budget's line."""

from collections.abc import Mapping

import pytest

from pages.pictures import growth
from pages.pictures.scene import Scene, Value, state, width
from spec_core.trace import DraftTree, Trace

Case = tuple[DraftTree, Scene]


def say(key: str, values: Mapping[str, Value]) -> str:
    return f"{key} " + " ".join(f"{name}={value}" for name, value in values.items())


@pytest.fixture(scope="module")
def cases(traces: list[Trace]) -> list[Case]:
    """Steps of trees that were grown and cut."""
    grown = [t for t in traces if t.header.knobs.get("shape") == "tree" and "top_k" in t.header.knobs]
    assert {len(trace.steps[1].draft.kept) for trace in grown} >= {7, 60}
    return [(trace.steps[n].draft, growth.picture(trace, n, say)) for trace in grown for n in (1, len(trace.steps) - 1)]


def test_values_are_products_down_the_path() -> None:
    tree = DraftTree([1, 2, 3, 4], [-1, 0, 1, 2], [-1, 0, 1, 2], [1.0, 0.5, 0.4, 0.1], [True] * 4, [0, 1, 2, 3])
    assert growth.path_values(tree) == pytest.approx([1.0, 0.5, 0.2, 0.02])


def test_every_candidate_that_has_a_name_is_drawn_once(cases: list[Case]) -> None:
    for tree, scene in cases:
        names = [shape.id for shape in scene.shapes]
        assert len(names) == len(set(names))
        everyone = range(len(tree.tokens))
        assert {f"n{i}" for i in everyone} <= set(names)
        assert {f"r{i}" for i in everyone if i} <= set(names)


def test_the_ranking_is_in_order_at_every_moment(cases: list[Case]) -> None:
    for tree, scene in cases:
        values = growth.path_values(tree)
        for place in range(len(scene.frames)):
            now = state(scene, place)
            bars = {int(name[1:]): float(str(change["x"])) for name, change in now.items() if name[0] == "r"}
            ranked = sorted(bars, key=bars.__getitem__)
            assert all(values[a] >= values[b] for a, b in zip(ranked, ranked[1:], strict=False))


def test_the_line_separates_what_is_kept(cases: list[Case]) -> None:
    for tree, scene in cases:
        now, shapes = state(scene, len(scene.frames) - 1), {shape.id: shape for shape in scene.shapes}
        line = shapes["cut"].x
        left = {i for i in range(1, len(tree.tokens)) if float(str(now[f"r{i}"]["x"])) < line}
        assert left == set(tree.kept[1:])
        pruned = {i for i in range(1, len(tree.tokens)) if now[f"n{i}"].get("look") == "node pruned"}
        assert pruned == set(range(1, len(tree.tokens))) - left


def test_what_goes_on_is_what_the_next_pass_expands(cases: list[Case]) -> None:
    for tree, scene in cases:
        chips = {int(shape.id[1:]) for shape in scene.shapes if "chosen" in shape.look}
        assert {i for i, grown in enumerate(tree.beam) if grown and i} <= chips


def test_candidates_are_counted_with_those_nobody_names(cases: list[Case]) -> None:
    for tree, scene in cases:
        lost = sum(one.more + len(one.tokens) for one in tree.others)
        whole = len(tree.tokens) - 1 + lost
        rerank = next(frame for frame in scene.frames if frame.kind == "rerank").say
        assert rerank == f"growth.rerank kept={len(tree.kept) - 1} all={whole}"


def test_nothing_stands_outside_or_overflows(cases: list[Case]) -> None:
    for _, scene in cases:
        end = state(scene, len(scene.frames) - 1)
        for shape in scene.shapes:
            x = float(str(end.get(shape.id, {}).get("x", shape.x)))
            if shape.kind == "rect":
                assert x >= 0
                assert x + shape.w <= scene.width + 0.1
                assert shape.y + shape.h <= scene.height + 0.1
            if shape.kind == "rect" and shape.label:
                assert width(shape.label, shape.size) <= shape.w - 7
