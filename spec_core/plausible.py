"""Whether a trace from outside can be shown: nothing a decode could not have made, and nothing too big to draw.

What trace.py checks is that lists fit together; this is about the numbers and texts in them. A file may be anybody's.
"""

import math
from collections.abc import Iterator

import msgspec

from spec_core.trace import Header, Step, Trace, TraceError, Word

LARGEST = 1e13  # of any number: weights of a network, milliseconds
TOKEN = 2**31
NODES, ALL_NODES, STEPS, PASSES = 1024, 250_000, 5_000, 4_096  # in a step, in all
TEXT, NAME = 400_000, 2_000  # characters of a prompt; of everything else
SLACK = 1e-3  # above 1 that rounding may have left in a probability


def check(trace: Trace) -> None:
    """TraceError where a trace cannot be shown."""
    if len(trace.steps) > STEPS or sum(len(step.draft.tokens) for step in trace.steps) > ALL_NODES:
        raise TraceError("This trace is too long to be shown.", "big")
    check_header(trace.header)
    for step in trace.steps:
        check_step(step)
    if trace.end:
        check_leaves(trace.end)


def check_header(head: Header) -> None:
    check_leaves(msgspec.structs.replace(head, prompt=msgspec.structs.replace(head.prompt, text="")))
    if len(head.prompt.text) > TEXT:
        raise TraceError("This trace is too long to be shown.", "big")
    check_tokens([*head.prompt.ids, *head.stops, *head.words])
    check_words(head.words)
    if min(head.target.layers, head.target.hidden, head.target.vocab, head.budget) < 1:
        raise odd()


def check_step(step: Step) -> None:
    check_leaves(step)
    tree, verdict = step.draft, step.verdict
    if len(tree.tokens) > NODES or len(step.passes) > PASSES:
        raise TraceError("This trace is too long to be shown.", "big")
    check_tokens([*tree.tokens, *step.committed, *step.words, *(t for lost in tree.others for t in lost.tokens)])
    check_words(step.words)
    if not all(-SLACK <= p <= 1 + SLACK for p in (*tree.probs, *verdict.p, *spread(step))):
        raise odd()
    if any(min(p.ms, p.start_ms, p.rows, p.layers) < 0 for p in step.passes):
        raise odd()
    if not all(-1 <= i < len(tree.tokens) for i in (*tree.passes, *(one.child for one in verdict.decisions))):
        raise odd()  # a pass guesses something, so there are no more of them than nodes
    if any(len(named.tokens) != len(named.probs) for named in (*tree.others, *verdict.wanted)):
        raise odd()


def spread(step: Step) -> Iterator[float]:
    """The other probabilities of a step: of losers, of what the target wanted, of its decisions."""
    for losers in step.draft.others:
        yield from losers.probs
    for wanted in step.verdict.wanted:
        yield from (*wanted.probs, wanted.rest)
    for decision in step.verdict.decisions:
        yield from (decision.p, decision.q, decision.u or 0.0)


def check_leaves(part: object) -> None:
    """Every number finite and no giant, every text of a size one can read."""
    for leaf in leaves(msgspec.to_builtins(part)):
        if isinstance(leaf, str) and len(leaf) > NAME:
            raise TraceError("This trace is too long to be shown.", "big")
        if isinstance(leaf, int | float) and not (math.isfinite(leaf) and abs(leaf) <= LARGEST):
            raise odd()


def leaves(part: object) -> Iterator[object]:
    if isinstance(part, dict):
        for key, value in part.items():
            yield key
            yield from leaves(value)
    elif isinstance(part, list | tuple):
        for value in part:
            yield from leaves(value)
    else:
        yield part


def check_tokens(tokens: list[int]) -> None:
    if not all(0 <= token < TOKEN for token in tokens):
        raise odd()


def check_words(words: dict[int, Word]) -> None:
    """Bytes that are bytes."""
    if not all(0 <= byte < 256 for word in words.values() if not isinstance(word, str) for byte in word):
        raise odd()


def odd() -> TraceError:
    return TraceError("A number in this trace is one that no decode could have made.", "odd")
