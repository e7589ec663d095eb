"""What can be said of finished runs: speed against plain decoding, the proof of equal text, where the time went."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spec_core.trace import (
    Difference,
    PassKind,
    Trace,
    comparable,
    decode_ms,
    difference,
    exact,
    ids,
    tau,
    time_split,
    tokens_per_second,
)

NEAR_TIE = 1e-4  # logits this close may swap when a sum is taken in another order
KINDS: tuple[PassKind, ...] = ("draft", "head", "target", "host")

Verdict = Literal["baseline", "identical", "near", "half", "differs", "sampled", "none"]


@dataclass(frozen=True)
class Proof:
    """How a text compares with plain decoding's: `tokens` were compared; `where` is set where they part."""

    verdict: Verdict
    tokens: int = 0
    where: Difference | None = None


@dataclass(frozen=True)
class Slowness:
    """Why a run lost: the kind of pass that adds most to a step, and a step's length in plain steps."""

    kind: PassKind
    step_ms: float
    plain_ms: float
    tau: float
    share: float

    @property
    def ratio(self) -> float:
        return self.step_ms / self.plain_ms


def speedup(trace: Trace, plain: Trace) -> float:
    base = tokens_per_second(plain)
    return tokens_per_second(trace) / base if base else 0.0


def first_token_ms(trace: Trace) -> float | None:
    """Milliseconds to the first token: the target's. A drafter that reads the prompt then keeps nobody waiting."""
    first = trace.steps[0].passes if trace.steps else []
    return sum(one.ms for one in first if one.kind not in ("draft", "record")) if first else None


def ms_per_token(trace: Trace) -> float:
    speed = tokens_per_second(trace)
    return 1000 / speed if speed else 0.0


def proof(trace: Trace, plain: Trace | None) -> Proof:
    """Compare as far as both runs got; a run may have been stopped or asked for fewer tokens."""
    if plain is None:
        return Proof("none")
    if trace is plain:
        return Proof("baseline", len(ids(trace)))
    if trace.header.sampling.temperature > 0:
        return Proof("sampled")
    shared = min(len(ids(trace)), len(ids(plain)))
    where = difference(trace, plain)
    if where is None or where.position >= shared > 0 and cut(trace, plain):
        return Proof("identical", shared)
    if where.gap <= NEAR_TIE:
        return Proof("near", shared, where)
    return Proof("differs" if exact(trace.header.dtype) else "half", shared, where)


def cut(trace: Trace, plain: Trace) -> bool:
    """The shorter run ended because it was told to, not because its text was over."""
    shorter = min(trace, plain, key=lambda t: len(ids(t)))
    return shorter.end is None or shorter.end.reason in ("cancelled", "length")


def per_step(trace: Trace) -> dict[PassKind, float]:
    """Mean milliseconds of every kind of pass in a decode step."""
    steps = max(1, len(trace.steps) - 1)
    split = time_split([trace])
    return {kind: split.get(kind, 0.0) / steps for kind in KINDS}


def slowness(trace: Trace, plain: Trace) -> Slowness | None:
    """None for a run that did not lose, or of which nobody can say."""
    if trace is plain or not comparable(trace, plain) or speedup(trace, plain) >= 1 or not decode_ms(trace):
        return None
    ours, theirs = per_step(trace), per_step(plain)
    kind = max(KINDS, key=lambda k: ours[k] - theirs[k])
    step, base = sum(ours.values()), sum(theirs.values())
    return Slowness(kind, step, base, tau(trace), ours[kind] / step)


def implausible(trace: Trace, plain: Trace) -> bool:
    """A step holds a target pass and more, so it is no quicker than a plain step unless the device was busy then."""
    return trace is not plain and speedup(trace, plain) > 1.1 * max(1.0, tau(trace))


def looping(tokens: Sequence[int], longest: int = 24, times: int = 3) -> bool:
    """The text ends in a loop: something short, `times` times in a row, which is easy to guess and inflates tau."""
    return any(
        len(tokens) >= times * n >= 12 and list(tokens[-n:]) * times == list(tokens[-times * n :])
        for n in range(1, longest + 1)
    )
