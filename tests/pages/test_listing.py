"""The code beside the picture is the files' own, and every move of every recorded run has its lines in it."""

import ast
import html
import re
from pathlib import Path

import pytest

from pages.parts import code, listing
from pages.pictures import step as picture
from spec_core.methods import discover
from spec_core.trace import Trace, load

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "assets" / "traces"
SHAPES = ({"shape": "tree"}, {"shape": "chain"})
PATHS = sorted(FOLDER.glob("chat.*.jsonl.gz"))


def shown(trace: Trace) -> list[listing.Excerpt]:
    rules = dict.fromkeys(asked.rule for step in trace.steps for asked in step.verdict.decisions)
    drafting = listing.drafting(trace.header.method.key, trace.header.knobs)
    return [listing.loop(), *map(listing.rule, rules), *drafting]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_every_move_of_a_recorded_run_has_its_lines(path: Path) -> None:
    trace = load(path)
    assert len(trace.steps) > 1
    scene = picture.picture(trace, lambda key, values: key)
    moves = {listing.move(scene, i) for i in range(len(scene.frames))}
    bare = {move for move in moves if not any(listing.marked(one, move) for one in shown(trace))}
    assert bare == set()


def test_a_draft_pass_is_marked_in_the_methods_own_code() -> None:
    for key, move in (("eagle", "grow"), ("eagle2", "grow"), ("eagle3", "grow"), ("dflash", "block")):
        assert any(listing.marked(one, move) for one in listing.drafting(key, {"shape": "tree"})), key


def test_every_mark_finds_a_statement_in_some_method() -> None:
    excerpts = [listing.loop(), listing.rule("match"), listing.rule("reject")]
    excerpts += [one for key in discover() for knobs in SHAPES for one in listing.drafting(key, knobs)]
    statements = [listing.head(node) for one in excerpts for node in ast.walk(one.node) if isinstance(node, ast.stmt)]
    wanted = {part for parts in listing.MARKS.values() for part in parts}
    assert {part for part in wanted if not any(part in text for text in statements)} == set()


@pytest.mark.parametrize("key", discover())
def test_every_method_shows_its_propose_as_it_stands_in_its_file(key: str) -> None:
    first = listing.drafting(key, {"shape": "tree"})[0]
    assert first.name == "propose"
    text = (ROOT / first.path).read_text("utf-8").splitlines()
    assert list(first.lines) == text[first.first - 1 : first.first - 1 + len(first.lines)]


def test_a_knob_decides_which_way_of_growing_is_shown() -> None:
    names = [[one.name for one in listing.drafting("eagle3", knobs)] for knobs in SHAPES]
    assert ["grow_dynamic" in found for found in names] == [True, False]
    assert ["grow_chain" in found for found in names] == [False, True]


def test_a_method_from_elsewhere_has_no_code_here() -> None:
    for key in ("a method of tomorrow", "../decode", "nobody"):
        assert listing.drafting(key, {}) == []


def test_the_first_pass_of_a_step_and_the_later_ones_run_different_lines() -> None:
    grow = listing.drafting("eagle3", {"shape": "tree"})[1]
    assert grow.name == "grow_dynamic"
    first, later = listing.marked(grow, "grow.first"), listing.marked(grow, "grow")
    assert first
    assert later
    assert not first & later


@pytest.mark.parametrize("one", [listing.loop(), listing.rule("reject")], ids=lambda one: one.name)
def test_coloured_code_is_the_code(one: listing.Excerpt) -> None:
    page = code.listed(one, {one.first + 1})
    rows = re.findall(r"<span[^>]*><i>(.)\s*(\d+) </i>(.*?)</span>", page)
    bare = [re.sub(r"<.*?>", "", text) for _, _, text in rows]
    assert [html.unescape(text).rstrip() for text in bare] == [text.rstrip() for text in one.lines]
    assert [int(number) for sign, number, _ in rows if sign == "▸"] == [one.first + 1]
