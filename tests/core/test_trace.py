"""A trace file says what was recorded and refuses what no decode could have made; its statistics mean what they say."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from models.load import Model
from spec_core import trace as tr
from spec_core.trace import (
    Card,
    Decision,
    DraftTree,
    End,
    Header,
    Losers,
    Network,
    Pass,
    PassKind,
    Prompt,
    Sampling,
    Step,
    Trace,
    TraceError,
    Verdict,
    Wanted,
    Word,
)
from spec_core.tree import chain, trunk
from tests.core.drafters import tree_of

HEADER = Header(
    id="abc",
    date="2026-01-02",
    method=Card("k", "Title", "paper", "idea"),
    knobs={"whole": 3, "part": 0.5, "on": True, "word": "tree"},
    target=Network("t", "h", 4, 32, 64, 1000, 2048),
    drafter=Network("d", "g", 1, 32, 48, 500, 1536),
    device="a device",
    dtype="float32",
    threads=2,
    versions={"torch": "2"},
    prompt=Prompt("hé 你", [5, 6], "chat"),
    sampling=Sampling(0.7, 0.9, 11),
    budget=9,
    stops=[0, 2],
    context_limit=512,
    words={5: "a", 6: [240, 159]},
    contended=True,
)


def passes(**ms: float) -> list[Pass]:
    kinds: dict[str, PassKind] = {"d": "draft", "h": "head", "t": "target", "o": "host", "r": "record"}
    return [Pass(kinds[kind], 0.0, value, 1, 1) for kind, value in ms.items()]


def chain_step(drafted: int, held: int, committed: int | None = None, times: list[Pass] | None = None) -> Step:
    """A chain of `drafted` guesses of which `held` are accepted; `committed` cuts the step short."""
    tree = chain(1, [10 + i for i in range(drafted)], [0.5] * drafted, [0] * drafted)
    verdict = Verdict(list(range(held + 1)), 9, [1.0] * (drafted + 1), [], [])
    tokens = [*tree.tokens[1 : held + 1], 9][:committed]
    return Step(tree, verdict, times or [], tokens)


def trace_of(*steps: Step) -> Trace:
    """Steps behind a prefill that adds one token."""
    return Trace(HEADER, [Step(trunk(6), Verdict([0], 1, [1.0], [], []), passes(t=50.0), [1]), *steps])


# The file


def random_step(dice: random.Random) -> Step:
    n = dice.randrange(12)
    tree = tree_of(dice.randrange(50000), [dice.randrange(i + 1) for i in range(n)], dice.choices(range(50000), k=n))
    node, path = n, []
    while node >= 0:
        path, node = [node, *path], tree.parents[node]
    tree = msgspec.structs.replace(
        tree,
        probs=[1.0, *(tr.tidy(dice.random()) for _ in range(n))],
        others=[Losers(i, [1, 2], [0.25, 1e-9], 7) for i in range(dice.randrange(n + 1))],
        layers=[[3] * n] * dice.randrange(2),
    )
    verdict = Verdict(
        path,
        dice.randrange(50000),
        [tr.tidy(dice.random()) for _ in range(n + 1)],
        [Wanted(0, [4, 0], [0.5, 0.25], 0.25)],
        [Decision(0, -1, "match", False, 0.5, 0.0, 4), Decision(0, 1, "reject", True, 0.1, 0.2, None, dice.random())],
    )
    offered = [*(tree.tokens[i] for i in path[1:]), verdict.bonus]
    words: dict[int, Word] = {dice.randrange(50000): "日本", 7: [255, 0], 8: '\n"\\\u2028'}
    return Step(tree, verdict, [Pass("host", 0.0, 0.125, 0, 0)], offered[: dice.randrange(1, 9)], words)


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_saved_is_what_is_loaded(seed: int, name: str, tmp_path: Path) -> None:
    dice = random.Random(seed)
    trace = Trace(HEADER, [random_step(dice) for _ in range(5)], End("stop", 5, 10, 1.5, 100.0, "why"))
    tr.save(trace, tmp_path / name)
    assert tr.load(tmp_path / name) == trace
    first = (tmp_path / name).read_bytes()
    tr.save(tr.load(tmp_path / name), tmp_path / name)
    assert (tmp_path / name).read_bytes() == first, "the same trace must give the same bytes"


def lines(count: int = 3) -> list[bytes]:
    dice = random.Random(1)
    steps = [random_step(dice) for _ in range(count)]
    return [tr.encode(part) for part in (HEADER, *steps, End("length", count, 9, 1.0, 1.0))]


def test_a_broken_off_file_reads_to_its_last_whole_line() -> None:
    """Cut at every byte: what is whole is there, nothing else is, and there is no end."""
    raw = b"".join(lines())
    whole = tr.read(raw.splitlines(keepends=True))
    first = len(lines()[0])
    for cut in range(first, len(raw), 7):
        part = tr.read(raw[:cut].splitlines(keepends=True))
        assert part.steps == whole.steps[: raw[:cut].count(b"\n") - 1]
        assert part.end is None
    assert tr.read(raw.splitlines(keepends=True)).end is not None


@pytest.mark.parametrize("raw", [b"", lines()[0][:-1], b'{"header":{"id"'], ids=["nothing", "no newline", "half"])
def test_a_file_without_a_whole_header_is_no_trace(raw: bytes) -> None:
    with pytest.raises(TraceError, match="holds no trace"):
        tr.read(raw.splitlines(keepends=True))


@pytest.mark.parametrize(
    "line",
    [b"garbage\n", b"[]\n", b"null\n", b"{}\n", b'{"step":5}\n', b'{"header":{}}\n', b"\xff\xfe\n", b"\n"],
)
def test_garbage_is_refused_with_one_sentence(line: bytes) -> None:
    for text in ([line], [lines()[0], line]):
        with pytest.raises(TraceError) as caught:
            tr.read(text)
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)


def test_other_schemas_and_headless_files_are_refused() -> None:
    with pytest.raises(TraceError, match="schema 99 and this version reads 1"):
        tr.read([tr.encode(msgspec.structs.replace(HEADER, schema=99))])
    with pytest.raises(TraceError, match="does not start with a trace header"):
        tr.read(lines()[1:])


@pytest.mark.parametrize("name", ["gone.jsonl", "not.gz", "half.jsonl.gz", "holed.jsonl.gz"])
def test_an_unreadable_file_names_itself(name: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl.gz"
    tr.save(Trace(HEADER, [], None), whole)
    (tmp_path / "not.gz").write_bytes(b"no gzip")
    packed = whole.read_bytes()
    (tmp_path / "half.jsonl.gz").write_bytes(packed[:40])
    (tmp_path / "holed.jsonl.gz").write_bytes(packed[:60] + bytes(30) + packed[90:])
    with pytest.raises(TraceError, match=name):
        tr.load(tmp_path / name)


TREE = chain(1, [2, 3, 4], [0.5, 0.5, 0.5], [0, 0, 0])
GOOD = Verdict([0, 1], 9, [1.0, 0.5, 0.5, 0.5], [], [])


def tree(**changes: Any) -> Step:
    return Step(msgspec.structs.replace(TREE, **changes), GOOD, [], [2, 9])


def verdict(**changes: Any) -> Step:
    return Step(TREE, msgspec.structs.replace(GOOD, **changes), [], [2, 9])


BROKEN = {
    "lists differ": tree(probs=[1.0]),
    "no nodes": tree(tokens=[], parents=[], passes=[], probs=[], beam=[]),
    "no root": tree(parents=[0, 0, 1, 2]),
    "its own parent": tree(parents=[-1, 0, 2, 2]),
    "parent behind child": tree(parents=[-1, 2, 0, 2]),
    "second root": tree(parents=[-1, 0, -1, 2]),
    "kept without parent": tree(kept=[0, 1, 3]),
    "root not kept": tree(kept=[1, 2, 3]),
    "kept is no node": tree(kept=[0, 1, 2, 9]),
    "kept twice": tree(kept=[0, 1, 1, 2]),
    "kept out of order": tree(kept=[0, 2, 1, 3]),
    "losers of no node": tree(others=[Losers(4, [1], [0.1], 0)]),
    "wanted at no node": verdict(wanted=[Wanted(4, [1], [0.1], 0.9)]),
    "decided at no node": verdict(decisions=[Decision(-1, 0, "match", True, 1.0, 1.0, 2)]),
    "commits nothing": Step(TREE, GOOD, [], []),
    "commits another token": Step(TREE, GOOD, [], [3, 9]),
    "commits too much": Step(TREE, GOOD, [], [2, 9, 9]),
    "path without root": verdict(path=[1]),
    "empty path": verdict(path=[]),
    "path leaps": verdict(path=[0, 2]),
    "path ends nowhere": verdict(path=[0, 1, 2, 3, 9]),
    "p is short": verdict(p=[1.0]),
    "path not kept": Step(
        msgspec.structs.replace(TREE, kept=[0, 1]), Verdict([0, 1, 2], 9, [1.0, 0.5], [], []), [], [2, 9]
    ),
}


@pytest.mark.parametrize("step", BROKEN.values(), ids=list(BROKEN))
def test_a_step_no_decode_could_make_is_refused(step: Step) -> None:
    tr.decode_line(tr.encode(verdict()))  # the unbroken one passes
    with pytest.raises(TraceError, match="is broken"):
        tr.decode_line(tr.encode(step))


# Statistics


def test_tau_counts_the_targets_token_and_leaves_out_the_prefill() -> None:
    trace = trace_of(chain_step(5, 2), chain_step(5, 0), chain_step(5, 3))
    assert tr.tau(trace) == pytest.approx(8 / 3)
    held = [tr.accepted(step) for step in trace.steps[1:]]
    assert (held, sum(held) / 3) == ([2, 0, 3], pytest.approx(5 / 3))
    assert tr.tau(trace_of()) == 0.0


@pytest.mark.parametrize(("committed", "held"), [(1, 1), (2, 2), (3, 3), (4, 3)])
def test_a_step_cut_short_counts_only_what_entered_the_text(committed: int, held: int) -> None:
    """Three guesses held; a stop or the budget let `committed` tokens in."""
    step = chain_step(5, 3, committed)
    assert tr.accepted(step) == held
    assert tr.tau(trace_of(chain_step(5, 1), step)) == (2 + committed) / 2
    assert len(tr.ids(trace_of(step))) == 1 + committed


def counts(*traces: Trace) -> list[tuple[int, int, int]]:
    return [(c.depth, c.tested, c.accepted) for c in tr.accepted_by_depth(traces)]


def test_acceptance_by_depth_is_conditional_on_the_depth_before() -> None:
    trace = trace_of(chain_step(3, 2), chain_step(3, 0), chain_step(3, 3))
    assert counts(trace) == [(1, 3, 2), (2, 2, 2), (3, 2, 1)]
    assert counts(trace, trace) == [(1, 6, 4), (2, 4, 4), (3, 4, 2)]
    assert counts(trace_of(chain_step(0, 0))) == []


def test_what_a_stop_or_the_budget_cut_off_was_never_tested() -> None:
    assert counts(trace_of(chain_step(5, 3, 2))) == [(1, 1, 1), (2, 1, 1)]
    assert counts(trace_of(chain_step(5, 3, 3))) == [(1, 1, 1), (2, 1, 1), (3, 1, 1)]
    assert counts(trace_of(chain_step(5, 3, 4))) == [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 0)]


def test_a_branch_that_went_no_deeper_is_not_a_wrong_guess() -> None:
    """0 → 1 and 0 → 2 → 3; the target takes 1, and nothing hung below it."""
    tree = DraftTree(
        [5, 6, 7, 8], [-1, 0, 0, 2], [-1, 0, 0, 1], [1.0, 0.5, 0.4, 0.3], [True, False, True, False], [0, 1, 2, 3]
    )
    step = Step(tree, Verdict([0, 1], 9, [1.0] * 4, [], []), [], [6, 9])
    assert counts(trace_of(step)) == [(1, 1, 1)]
    found = [(c.depth, c.tested, c.accepted) for c in tr.accepted_by_depth([trace_of(step)], dead_ends=True)]
    assert found == [(1, 1, 1), (2, 1, 0)], "but no text came so deep"
    lost = Step(tree, Verdict([0, 2], 9, [1.0] * 4, [], []), [], [7, 9])
    assert counts(trace_of(lost)) == [(1, 1, 1), (2, 1, 0)]


def test_a_prompt_answered_by_one_token_has_no_tau() -> None:
    silent, other = trace_of(), trace_of(chain_step(5, 3))
    assert tr.mean_tau([silent, other]) == tr.tau(other) == 4
    assert tr.mean_tau([silent]) == 0


def test_pruned_levels_were_never_put_to_the_target() -> None:
    step = chain_step(4, 2)
    pruned = msgspec.structs.replace(step, draft=msgspec.structs.replace(step.draft, kept=[0, 1, 2]))
    assert counts(trace_of(pruned)) == [(1, 1, 1), (2, 1, 1)]


def test_speed_is_tokens_over_time_without_prefill_and_record() -> None:
    first = chain_step(3, 2, times=passes(d=1.0, h=2.0, t=6.0, o=1.0, r=90.0))
    second = chain_step(3, 0, times=passes(d=3.0, t=7.0, r=5.0))
    trace = trace_of(first, second)
    assert first.ms == 10.0
    assert tr.decode_ms(trace) == 20.0
    assert tr.tokens_per_second(trace) == pytest.approx(1000 * 4 / 20)
    split = {"draft": 4.0, "head": 2.0, "target": 13.0, "host": 1.0, "record": 95.0}
    assert tr.time_split([trace]) == split
    assert tr.time_split([trace, trace]) == {kind: 2 * ms for kind, ms in split.items()}
    assert (tr.tokens_per_second(trace_of()), tr.time_split([trace_of()])) == (0.0, {})


def plain(tokens: list[int], top: list[list[float]]) -> Trace:
    """Plain decoding's trace: a step per token, each with the target's top probabilities."""
    wanted = [[Wanted(0, list(range(len(p))), p, 0.0)] for p in top]
    pairs = zip(tokens, wanted, strict=True)
    return Trace(HEADER, [Step(trunk(1), Verdict([0], t, [1.0], w, []), [], [t]) for t, w in pairs])


def test_difference_names_the_place_and_plains_own_gap_there() -> None:
    base = plain([1, 9, 9, 4], [[0.9, 0.1], [0.6, 0.3], [0.5, 0.499955], [0.7, 0.2]])
    same = trace_of(chain_step(0, 0), chain_step(0, 0), Step(trunk(9), Verdict([0], 4, [1.0], [], []), [], [4]))
    assert tr.difference(same, base) is None
    parted = tr.difference(trace_of(chain_step(0, 0), chain_step(1, 1)), base)
    assert parted is not None
    assert (parted.position, parted.gap) == (2, pytest.approx(math.log(0.5 / 0.499955)))
    assert parted.gap <= 1e-4


def test_a_text_that_ends_early_or_late_differs_too() -> None:
    base = plain([1, 9, 9], [[0.9, 0.1], [0.6, 0.3], [0.8, 0.2]])
    short = tr.difference(trace_of(chain_step(0, 0)), base)
    long = tr.difference(trace_of(*[chain_step(0, 0)] * 4), base)
    assert short is not None
    assert (short.position, short.gap) == (2, pytest.approx(math.log(4)))
    assert (long and long.position, long and long.gap) == (3, math.inf)


def test_a_certain_target_has_no_near_tie() -> None:
    assert tr.top_gap(Wanted(0, [1], [1.0], 0.0)) == math.inf
    assert tr.top_gap(Wanted(0, [1, 2], [0.5, 0.5], 0.0)) == 0.0


@pytest.mark.parametrize(
    ("value", "digits", "kept"), [(0.123456789, 5, 0.12346), (1.5e-11, 5, 1.5e-11), (2 / 3, 2, 0.67)]
)
def test_tidy_keeps_significant_digits(value: float, digits: int, kept: float) -> None:
    assert tr.tidy(value, digits) == kept
    assert tr.tidy(math.nan) == 0.0


# Text


def test_characters_spread_over_tokens_join_again(smollm: Model) -> None:
    """With the real tokenizer: words are collected per id, and only the joined bytes are decoded."""
    tokenizer = smollm.tokenizer
    assert tokenizer is not None
    for text in ("naïve 🦊🧑‍🚀 fin", "东京、서울, Zürich", "\n\t  def f():\n", "١٢٣ 12345"):
        tokens = tokenizer.raw(text)
        known = {token: tokenizer.word(token) for token in tokens}
        assert tr.text_of(tokens, known) == text
        steps = [Step(trunk(1), Verdict([0], t, [1.0], [], []), [], [t], {t: known[t]}) for t in tokens]
        assert tr.text(Trace(HEADER, steps)) == text


def test_half_a_character_is_marked_and_an_unknown_id_is_named() -> None:
    known: dict[int, Word] = {1: [240, 159], 2: [166, 138], 3: "a"}
    assert tr.text_of([3, 1, 2], known) == "a🦊"
    assert tr.text_of([3, 1], known) == "a\ufffd"
    assert tr.text_of([3, 77], known) == "a<77>"


def test_words_come_from_the_header_and_every_step() -> None:
    steps = [msgspec.structs.replace(chain_step(0, 0), words={9: "nine"})]
    assert tr.words(Trace(HEADER, steps)) == {5: "a", 6: [240, 159], 9: "nine"}


CHECK: list[Callable[[Trace], float]] = [tr.tau, tr.tokens_per_second, tr.decode_ms]


@pytest.mark.parametrize("statistic", CHECK, ids=lambda f: f.__name__)
def test_statistics_of_an_empty_trace_are_zero(statistic: Callable[[Trace], float]) -> None:
    assert statistic(Trace(HEADER, [])) == 0.0
