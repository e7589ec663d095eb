"""MODEL: what a step would cost and bring, from measured times and measured acceptance. Plain arithmetic, no torch.

speedup = tau * T_target / (T_draft + T_verify + T_host); below 1 speculation loses.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spec_core.measurement import Line, Measurement, Point, at, curve, targets
from spec_core.trace import DepthCount, Step, Trace, accepted, accepted_by_depth, depths

FEWEST = 10  # guesses that a rate of acceptance has to rest on


@dataclass(frozen=True)
class Settings:
    """size: the target's time as a multiple of the measured one. batch: texts decoded at once."""

    length: int
    size: float = 1.0
    batch: int = 1


@dataclass(frozen=True)
class Outcome:
    """One step in milliseconds, what it brings, and plain decoding's step beside it."""

    tau: float
    draft: float
    head: float
    verify: float
    host: float
    plain: float

    @property
    def step(self) -> float:
        return self.draft + self.head + self.verify + self.host

    @property
    def speedup(self) -> float:
        return self.tau * self.plain / self.step if self.step else 0.0


def favourites(traces: Iterable[Trace]) -> list[DepthCount]:
    """As `accepted_by_depth`, of each node's likeliest child alone: what a chain would have guessed there."""
    tested: dict[int, int] = {}
    held: dict[int, int] = {}
    for step in (step for trace in traces for step in trace.steps[1:]):
        for depth, favourite in enumerate(tried(step), 1):
            tested[depth] = tested.get(depth, 0) + 1
            held[depth] = held.get(depth, 0) + favourite
    return [DepthCount(depth, tested[depth], held[depth]) for depth in sorted(tested)]


def tried(step: Step) -> list[bool]:
    """Down the accepted path: whether the target's choice was its node's likeliest child."""
    tree, path, done = step.draft, step.verdict.path, accepted(step)
    found: list[bool] = []
    for place, node in enumerate(path[: done + 1]):
        below = [kept for kept in tree.kept if tree.parents[kept] == node]
        if not below or (place == done and len(step.committed) <= done):
            break
        best = max(below, key=lambda child: tree.probs[child])
        found.append(place < done and path[place + 1] == best)
    return found


def rates(counts: Sequence[DepthCount]) -> list[float]:
    """Acceptance by depth, as far as there are guesses enough to tell."""
    return [c.accepted / c.tested for c in counts if c.tested >= FEWEST]


def rates_of(line: Line, traces: Sequence[Trace]) -> list[float]:
    """What was measured of a curve's method: of the favourites for a chain, of the whole draft for a tree or block."""
    return rates(favourites(traces) if line.form == "chain" else accepted_by_depth(traces, dead_ends=True))


def tau(acceptance: Sequence[float], length: int) -> float:
    """Tokens a step brings, the target's own included. Beyond the measured depths the last rate goes on."""
    total, chance = 1.0, 1.0
    for depth in range(length if acceptance else 0):
        chance *= acceptance[min(depth, len(acceptance) - 1)]
        total += chance
    return total


def part(points: Sequence[Point], length: float, kind: str) -> float:
    return at(points, length, lambda point: dict(point.split).get(kind, 0.0))  # type: ignore[arg-type]


def outcome(m: Measurement, line: Line, context: int, acceptance: Sequence[float], given: Settings) -> Outcome | None:
    """One step of a curve's method; None where the measurement has not enough to tell.

    A batch multiplies rows: of the target as measured, of the drafter by the factor the same rows cost the target.
    """
    points, passes = curve(m, line, context), targets(m, context)
    if not points or not passes or at(passes, 1) <= 0:
        return None
    rows, width = (at(points, given.length, lambda p, of=of: getattr(p, of)) for of in ("rows", "width"))
    crowd = target_ms(passes, given.batch * width) / target_ms(passes, width)
    return Outcome(
        tau=tau(acceptance, given.length),
        draft=crowd * part(points, given.length, "draft"),
        head=crowd * part(points, given.length, "head"),
        verify=given.size * target_ms(passes, given.batch * rows),
        host=part(points, given.length, "host") + part(passes, given.batch * rows, "host"),
        plain=given.size * target_ms(passes, given.batch) + part(passes, given.batch, "host"),
    )


def target_ms(passes: Sequence[Point], rows: float) -> float:
    """The target's own time for that many rows, its verdict left out."""
    return max(1e-9, part(passes, max(1.0, rows), "target"))


def best(m: Measurement, line: Line, context: int, acceptance: Sequence[float], given: Settings, most: int) -> int:
    """The draft length of highest speedup."""
    found = {k: outcome(m, line, context, acceptance, Settings(k, given.size, given.batch)) for k in range(1, most + 1)}
    return max(found, key=lambda k: one.speedup if (one := found[k]) else 0.0)


@dataclass(frozen=True)
class Bin:
    """Guesses whose confidence lay in one tenth: their mean confidence, how many, and how many held."""

    mean: float
    tested: int
    accepted: int


def calibration(traces: Iterable[Trace], bins: int = 10) -> list[Bin]:
    """Confidence against acceptance (EAGLE-2, arXiv 2406.16858 fig. 6): every guess whose parent held, by its q."""
    found: dict[int, list[tuple[float, bool]]] = {}
    for step in (step for trace in traces for step in trace.steps[1:]):
        for q, held in asked(step):
            found.setdefault(min(bins - 1, int(q * bins)), []).append((q, held))
    return [
        Bin(sum(q for q, _ in pairs) / len(pairs), len(pairs), sum(held for _, held in pairs))
        for _, pairs in sorted(found.items())
    ]


def asked(step: Step) -> list[tuple[float, bool]]:
    """q of every kept guess whose parent is on the path, and whether it held; what was never counted is left out."""
    tree, path, level = step.draft, set(step.verdict.path), depths(step.draft)
    most = len(step.committed)
    return [
        (tree.probs[node], node in path) for node in tree.kept[1:] if tree.parents[node] in path and level[node] <= most
    ]
