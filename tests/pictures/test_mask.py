"""Who may look at whom: one's own branch in a tree, everybody in a block, what stands before when it is checked."""

from collections.abc import Mapping

import pytest

from pages.pictures import mask
from pages.pictures.scene import Scene, Value, state
from pages.pictures.waiting import meet
from spec_core.trace import Trace


def say(key: str, values: Mapping[str, Value]) -> str:
    return f"{key} " + " ".join(f"{name}={value}" for name, value in values.items())


@pytest.fixture(scope="module")
def case(traces: list[Trace]) -> tuple[Trace, Trace, Scene]:
    tree = next(t for t in traces if t.header.method.key == "eagle3")
    block = next(t for t in traces if t.header.method.key == "dflash")
    return tree, block, mask.picture(tree, block, say)


def looks(scene: Scene, kind: str) -> dict[str, str]:
    """Look of every shape at the first frame of that kind."""
    place = next(i for i, frame in enumerate(scene.frames) if frame.kind == kind)
    now = state(scene, place)
    return {s.id: str(now.get(s.id, {}).get("look", s.look)) for s in scene.shapes if now.get(s.id, {}).get("on")}


def test_rows_of_a_tree_are_kept_nodes_with_all_they_hang_on(case: tuple[Trace, Trace, Scene]) -> None:
    tree = case[0].steps[meet(case[0], case[1])[0]].draft
    for most in (1, 4, mask.SHOWN):
        rows = mask.telling(tree, most)
        assert rows == sorted(rows)
        assert len(rows) == most
        assert set(rows) <= set(tree.kept)
        assert all(node == 0 or tree.parents[node] in rows for node in rows)


def test_a_row_of_a_tree_sees_itself_and_its_ancestors_only(case: tuple[Trace, Trace, Scene]) -> None:
    tree = case[0].steps[meet(case[0], case[1])[0]].draft
    rows = mask.telling(tree, mask.SHOWN)
    shown = looks(case[2], "tree")
    for a, node in enumerate(rows):
        line = {node}
        while tree.parents[node] >= 0:
            node = tree.parents[node]
            line.add(node)
        for b, other in enumerate(rows):
            assert ("sees" in shown[f"tree.{a}.{b}"].split()) == (other in line)


def test_in_a_block_everybody_sees_everybody_until_the_target_checks_it(case: tuple[Trace, Trace, Scene]) -> None:
    slots = min(mask.SHOWN, len(case[1].steps[meet(case[0], case[1])[1]].draft.tokens))
    drafted, checked = looks(case[2], "block"), looks(case[2], "check")
    for a in range(slots):
        for b in range(slots):
            assert "sees" in drafted[f"block.{a}.{b}"].split()
            assert ("sees" in checked[f"block.{a}.{b}"].split()) == (b <= a)


def test_every_cell_says_who_and_why(case: tuple[Trace, Trace, Scene]) -> None:
    cells = [s for s in case[2].shapes if s.look.startswith("cell")]
    assert len(cells) > 100
    assert all(s.about.startswith("mask.about.") for s in cells)


def test_only_one_row_stands_out_at_a_time(case: tuple[Trace, Trace, Scene]) -> None:
    for i in range(len(case[2].frames)):
        now = state(case[2], i)
        picked = {name.rsplit(".", 1)[0] for name, change in now.items() if "picked" in str(change.get("look", ""))}
        assert len(picked) <= 1
