"""Sampling experiments: how often a continuation came out, beside how often it should. Records, rules to try, and the
test that tells chance from a wrong rule. No torch.
"""

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from spec_core.trace import KnobValue, Network, Sampling, TraceError, Word

SCHEMA = 1
LEAST = 5.0  # expected draws below which a continuation is counted with the others, as the test wants it
DOUBT = 0.001  # a rule whose counts are less likely than this is called wrong

# ---- the record


class Arm(Struct, frozen=True, omit_defaults=True):
    """One way to draw. method: a key; wrong: the name of what was spoilt on purpose, or "". counts: draws of each
    continuation, and of all others last. asked, held: guesses put to the target, and those accepted."""

    method: str
    knobs: dict[str, KnobValue]
    counts: list[int]
    asked: int
    held: int
    wrong: str = ""


class Spot(Struct, frozen=True, omit_defaults=True):
    """A place in a text: all draws continue it. root: the sure token before the first draw. continuations: tokens of
    those expected often enough; law: their exact probability under the target, and of all others last."""

    before: list[int]
    root: int
    continuations: list[list[int]]
    law: list[float]
    arms: list[Arm]


class Experiment(Struct, frozen=True, omit_defaults=True):
    """`draws` continuations of every spot by every arm. words: text of the ids named."""

    id: str
    date: str
    device: str
    dtype: str
    target: Network
    drafters: dict[str, Network]
    prompt: str
    sampling: Sampling
    draws: int
    spots: list[Spot]
    words: dict[int, Word]
    schema: int = SCHEMA


def save(found: Experiment, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


def load(path: Path) -> Experiment:
    """Read an experiment; TraceError says what is wrong with the file."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Experiment)
    except (OSError, msgspec.DecodeError) as error:
        raise TraceError(f"{path.name} is no sampling experiment: {error}.", "line") from error
    if found.schema != SCHEMA:
        raise TraceError(f"{path.name} has schema {found.schema} and this version reads {SCHEMA}.", "schema")
    return found


# ---- is it chance?


class Verdict(Struct, frozen=True):
    """Pearson's statistic of counts against a law, its degrees of freedom, and how likely one as large is by chance."""

    x: float
    df: int
    chance: float

    @property
    def fits(self) -> bool:
        return self.chance >= DOUBT


def verdict(counts: Sequence[int], law: Sequence[float]) -> Verdict:
    """Do these counts look like draws from `law`? What is expected less than LEAST times is counted together."""
    n = sum(counts)
    often = [(count, n * p) for count, p in zip(counts, law, strict=True) if n * p >= LEAST]
    rest = (n - sum(count for count, _ in often), n - sum(expected for _, expected in often))
    cells = [*often, rest] if rest[1] > 1e-9 * n else often
    if rest[1] <= 1e-9 * n and rest[0] > 0:  # something came out that the law never gives
        return Verdict(math.inf, max(1, len(often) - 1), 0.0)
    x = sum((count - expected) ** 2 / expected for count, expected in cells)
    return Verdict(x, max(1, len(cells) - 1), beyond(x, max(1, len(cells) - 1)))


def beyond(x: float, df: int) -> float:
    """P(chi-square with `df` degrees of freedom ≥ x): a Poisson tail, and for odd df one that starts at erfc."""
    half, odd = x / 2, df % 2
    if half <= 0:
        return 1.0
    powers = [k + odd / 2 for k in range((df - odd) // 2)]
    tail = sum(math.exp(power * math.log(half) - half - math.lgamma(power + 1)) for power in powers)
    return min(1.0, tail + (math.erfc(math.sqrt(half)) if odd else 0.0))


# ---- rules to try on two laws, right ones and wrong ones

Rule = Literal["reject", "match", "again", "threshold", "argmax"]
RULES: tuple[Rule, ...] = ("reject", "match", "again", "threshold", "argmax")
RIGHT: tuple[Rule, ...] = ("reject", "match")
Law = Sequence[float]


class Emitted(Struct, frozen=True):
    """Draws of each token of a law, and how many of them were accepted guesses."""

    counts: list[int]
    accepted: int


def pick(weights: Law, dice: random.Random) -> int:
    return dice.choices(range(len(weights)), weights)[0]


def over(p: Law, q: Law) -> list[float]:
    """What p has over q, (p - q)+; p itself where that is nothing."""
    left = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
    return left if sum(left) > 0 else list(p)


def by_reject(p: Law, q: Law, dice: random.Random) -> tuple[int, bool]:
    guess = pick(q, dice)
    held = dice.random() * q[guess] < p[guess]
    return (guess if held else pick(over(p, q), dice)), held


def by_match(p: Law, q: Law, dice: random.Random) -> tuple[int, bool]:
    guess, own = pick(q, dice), pick(p, dice)
    return own, own == guess


def by_again(p: Law, q: Law, dice: random.Random) -> tuple[int, bool]:
    """Wrong: after a refusal the token is drawn from all of p."""
    guess = pick(q, dice)
    held = dice.random() * q[guess] < p[guess]
    return (guess if held else pick(p, dice)), held


def by_threshold(p: Law, q: Law, dice: random.Random) -> tuple[int, bool]:
    """Wrong: a guess holds where p is at least q, and never elsewhere."""
    guess = pick(q, dice)
    held = p[guess] >= q[guess]
    return (guess if held else pick(over(p, q), dice)), held


def by_argmax(p: Law, q: Law, dice: random.Random) -> tuple[int, bool]:
    """Wrong: the guess is q's favourite, and is tested as if it had been drawn."""
    guess = max(range(len(q)), key=q.__getitem__)
    held = dice.random() * q[guess] < p[guess]
    return (guess if held else pick(over(p, q), dice)), held


PLAYED: dict[Rule, Callable[[Law, Law, random.Random], tuple[int, bool]]] = {
    "reject": by_reject,
    "match": by_match,
    "again": by_again,
    "threshold": by_threshold,
    "argmax": by_argmax,
}


def play(rule: Rule, p: Law, q: Law, n: int, seed: int) -> Emitted:
    """Draw `n` tokens with that rule. p and q: probabilities of the same tokens."""
    dice, counts, accepted = random.Random(seed), [0] * len(p), 0
    for _ in range(n):
        token, held = PLAYED[rule](p, q, dice)
        counts[token] += 1
        accepted += held
    return Emitted(counts, accepted)
