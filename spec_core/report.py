"""What a bench finds, as plain data, and its table. No torch, so that a page can read it anywhere."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from spec_core.contract import Knobs
from spec_core.trace import DepthCount, PassKind, Trace, exact, tokens_per_second

NEAR_TIE = 1e-4  # a top-2 logit gap that two correct fp32 paths may decide differently
HALF_TIE = 0.5  # … and two correct paths in half precision
GRAM, REPEATS = 8, 4  # a text that says the same GRAM tokens REPEATS times runs in circles


class Figures(Struct):
    """One method. identical: prompts with plain decoding's ids, near-ties included; None where tokens are drawn.

    All but the published tau belong to the *this device* preset. time_split: milliseconds of decode steps, by kind.
    """

    tau: float
    tau_published: float
    tau_published_by_set: dict[str, float]
    tokens_per_second: float
    speedup: float
    identical: int | None
    prompts: int
    accepted_by_depth: list[DepthCount]
    time_split: dict[PassKind, float]


class Ratio(Struct):
    """A time or a speed as a multiple of transformers' own, beside the value it should reach."""

    value: float
    bar: float
    better: str  # "lower" or "higher"

    @property
    def holds(self) -> bool:
        return self.value <= self.bar if self.better == "lower" else self.value >= self.bar


class Departure(Struct):
    """A greedy text that left plain decoding's at token `position`, where plain's own top-2 logit gap was `gap`."""

    method: str
    preset: str
    prompt: str
    position: int
    gap: float


class Report(Struct):
    """The JSON file."""

    date: str
    device: str
    threads: int
    dtype: str
    target: str
    tokens: int
    temperature: float
    methods: dict[str, Figures]
    ratios: dict[str, Ratio]
    presets: dict[str, Knobs]
    near_ties: list[Departure]
    differences: list[Departure]
    looping: int  # prompts whose text runs in circles, which flatters every drafter
    looping_prompts: list[str]
    skipped: dict[str, str]


def tie(dtype: str) -> float:
    """The largest gap at which two correct texts may part."""
    return NEAR_TIE if exact(dtype) else HALF_TIE


def speedup(traces: Sequence[Trace], plain: Sequence[Trace]) -> float:
    """Median over prompts of the ratio of tokens per second; prompts answered by a single token have none."""
    pairs = [(tokens_per_second(a), tokens_per_second(b)) for a, b in zip(traces, plain, strict=True)]
    return median([a / b for a, b in pairs if a and b] or [0.0])


def loops(tokens: Sequence[int]) -> bool:
    """Whether a text runs in circles."""
    grams = Counter(tuple(tokens[i : i + GRAM]) for i in range(len(tokens) - GRAM + 1))
    return max(grams.values(), default=0) >= REPEATS


def row(key: str, one: Figures) -> str:
    whole = sum(ms for kind, ms in one.time_split.items() if kind != "record") or 1.0
    shares = [f"{100 * one.time_split.get(kind, 0.0) / whole:3.0f}%" for kind in ("draft", "head", "target", "host")]
    same = "-" if one.identical is None else f"{one.identical}/{one.prompts}"
    speed = f"{one.tokens_per_second:9.1f} {one.speedup:7.2f}x"
    return f"{key:10} {one.tau:5.2f} {one.tau_published:9.2f} {speed} {same:>9}   {' '.join(shares)}"


def table(found: Report) -> str:
    """The report for a terminal."""
    lines = [
        f"{found.target} on {found.device}, {found.threads} threads, {found.dtype}, {found.tokens} tokens a prompt"
    ]
    lines += ["method       tau published  tokens/s  speedup identical   draft head target host"]
    lines += [row(key, one) for key, one in found.methods.items()]
    for name, one in found.ratios.items():
        verdict = "holds" if one.holds else "does not hold"
        lines.append(f"{name}: {one.value:.2f}, bar {one.bar:.2f} ({one.better} is better): {verdict}")
    for kind, one in [
        *(("near-tie", one) for one in found.near_ties),
        *(("DIFFERENT TEXT", one) for one in found.differences),
    ]:
        lines.append(f"{kind}: {one.method} ({one.preset}) on {one.prompt}, token {one.position}, gap {one.gap:.2g}")
    if found.looping:
        lines.append(f"{found.looping} texts run in circles and flatter tau: {', '.join(found.looping_prompts)}")
    return "\n".join(lines + [f"skipped {key}: {reason}" for key, reason in found.skipped.items()])
