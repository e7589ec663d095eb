"""What a latency measurement leaves behind: a setup, one line per timing, a finish. JSON Lines like a trace, no torch.

A later line about the same task replaces the earlier one, so a measurement can be drawn while its medians settle.
"""

import gzip
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from spec_core.contract import Method
from spec_core.report import Ratio
from spec_core.trace import Network, PassKind, TraceError

SCHEMA = 1
MARKS = (b'{"setup"', b'{"point"', b'{"finish"')  # how the lines of a measurement begin

DraftForm = Literal["chain", "tree", "block"]
Form = Literal["chain", "tree", "block", "budget", "calls", "rows", "target"]


class Task(Struct, frozen=True, omit_defaults=True):
    """What was timed, behind `context` cached tokens.

    chain, tree, block: one whole draft of `method` that looks `length` tokens ahead, through `layers` draft layers.
    budget: one whole tree of the published depth, cut to `length` nodes.
    calls: an LM head of `vocab` words, `length` times on one row. rows: the same head once, on `length` rows.
    target: one pass of the target over `length` rows and the verdict on them.
    """

    form: Form
    length: int
    context: int = 0
    method: str = ""
    layers: int = 0
    vocab: int = 0


class Point(Struct, frozen=True, omit_defaults=True):
    """Milliseconds of a task: median and quartiles of `n` timings; split: the medians of its parts.

    rows: how many the target has to read to check the draft, the root's included. width: most rows of one head call.
    """

    task: Task
    median: float
    low: float
    high: float
    n: int
    split: dict[PassKind, float] = {}
    rows: int = 0
    width: int = 0


class Setup(Struct, frozen=True, omit_defaults=True):
    """Where and on what. drafters, by method key; those in `untrained` have random weights, which cost the same time.

    built: target layers really there. Where that is fewer than the target has, target times are a MODEL: one layer's
    time as many times over, and one LM head's. timings: how many will be made in all.
    """

    id: str
    date: str
    device: str
    dtype: str
    threads: int
    versions: dict[str, str]
    target: Network
    drafters: dict[str, Network]
    untrained: list[str]
    built: int
    timings: int
    contended: bool = False
    schema: int = SCHEMA

    @property
    def modelled(self) -> bool:
        """Target times are computed from one layer's."""
        return self.built < self.target.layers

    @property
    def few_bits(self) -> bool:
        """Weights were read in the bits they were published with (`models.load.Model.number_type`)."""
        return self.dtype.endswith("(few bits)")


class Finish(Struct, frozen=True, omit_defaults=True):
    reason: Literal["done", "cancelled"]
    ms: float
    peak_memory_mb: float


Part = Setup | Point | Finish


class Measurement(Struct):
    """A measurement in memory; `finish` is None while it grows."""

    setup: Setup
    points: dict[Task, Point] = field(default_factory=dict)
    finish: Finish | None = None

    def copy(self) -> "Measurement":
        return Measurement(self.setup, dict(self.points), self.finish)

    @property
    def done(self) -> float:
        """Share of the timings that were made."""
        return min(1.0, sum(p.n for p in self.points.values()) / max(1, self.setup.timings))


class _Line(Struct, frozen=True, omit_defaults=True):
    setup: Setup | None = None
    point: Point | None = None
    finish: Finish | None = None


def encode(part: Part) -> bytes:
    """One part → its line, newline included."""
    if isinstance(part, Setup):
        line = _Line(setup=part)
    elif isinstance(part, Point):
        line = _Line(point=part)
    else:
        line = _Line(finish=part)
    return msgspec.json.encode(line) + b"\n"


def decode_line(line: bytes) -> Part:
    """A line → what was encoded; TraceError says what is wrong with it."""
    try:
        parsed = msgspec.json.decode(line, type=_Line)
    except msgspec.DecodeError as error:
        raise TraceError(f"This is not a line of a DraftScope measurement: {error}.", "line") from error
    part = parsed.setup or parsed.point or parsed.finish
    if part is None:
        raise TraceError("This is not a line of a DraftScope measurement: it holds no setup, point or finish.", "line")
    if isinstance(part, Setup) and part.schema != SCHEMA:
        message = f"This measurement has schema {part.schema} and this version reads {SCHEMA}: measure again."
        raise TraceError(message, "schema", {"schema": part.schema, "ours": SCHEMA})
    if isinstance(part, Point):
        check_point(part)
    return part


def check_point(point: Point) -> None:
    """Refuse a timing no clock could have made, so that nothing downstream has to ask."""
    times = [point.low, point.median, point.high, *point.split.values()]
    if not all(math.isfinite(ms) and ms >= 0 for ms in times) or not point.low <= point.median <= point.high:
        raise TraceError("A point of this measurement is broken: its times are no times, or out of order.", "point")
    task = point.task
    if point.n < 1 or task.length < 1 or min(task.context, task.layers, task.vocab, point.rows, point.width) < 0:
        raise TraceError("A point of this measurement is broken: it counts less than nothing.", "point")


def grown(measurement: Measurement | None, part: Part) -> Measurement:
    """`measurement` with one more part; a second setup corrects the first, a newer point replaces an older one."""
    if isinstance(part, Setup):
        known = measurement or Measurement(part)
        return Measurement(part, known.points, known.finish)
    if measurement is None:
        raise TraceError("This file does not start with the setup of a measurement.", "start")
    if isinstance(part, Point):
        measurement.points[part.task] = part
    else:
        measurement.finish = part
    return measurement


def read(lines: Iterable[bytes]) -> Measurement:
    """Lines → Measurement. A last line that broke off is left out."""
    measurement: Measurement | None = None
    for line in lines:
        if not line.endswith(b"\n"):
            break
        measurement = grown(measurement, decode_line(line))
    if measurement is None:
        raise TraceError("This file holds no measurement: its first line is missing or broken.", "start")
    return measurement


def load(path: Path) -> Measurement:
    """Read a measurement file, plain or gzipped."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path.name} cannot be read: {error}.", "packed") from error
    return read(raw.splitlines(keepends=True))


def file_bytes(measurement: Measurement) -> bytes:
    """The file's lines: every task once, with its last point."""
    end = [measurement.finish] if measurement.finish else []
    return b"".join(map(encode, [measurement.setup, *measurement.points.values(), *end]))


def save(measurement: Measurement, path: Path) -> None:
    """Write a measurement file; the same measurement gives the same bytes."""
    raw = file_bytes(measurement)
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)


# What is read off a measurement: derived here, once.


class Line(Struct, frozen=True):
    """One curve over draft length: a method, the form of its draft, and how many draft layers ran."""

    method: str
    form: DraftForm
    layers: int


def lines(measurement: Measurement) -> list[Line]:
    """The curves there are, in the order measured."""
    drafts = (task for task in measurement.points if task.form in ("chain", "tree", "block"))
    return list(dict.fromkeys(Line(task.method, task.form, task.layers) for task in drafts))  # type: ignore[arg-type]


def contexts(measurement: Measurement) -> list[int]:
    """Where drafts of several lengths were timed, so that there is a curve to draw."""
    found: dict[int, set[int]] = {}
    for task in (task for task in measurement.points if task.form in ("chain", "tree", "block")):
        found.setdefault(task.context, set()).add(task.length)
    most = max(map(len, found.values()), default=0)
    return sorted(context for context, lengths in found.items() if len(lengths) == most)


def lengths(measurement: Measurement) -> list[int]:
    return sorted({task.length for task in measurement.points if task.form in ("chain", "tree", "block")})


def curve(measurement: Measurement, line: Line, context: int) -> list[Point]:
    """The points of a curve, shortest draft first."""
    found = [point for point in every_context(measurement, line) if point.task.context == context]
    return sorted(found, key=lambda point: point.task.length)


def heads(measurement: Measurement, form: Form) -> dict[int, list[Point]]:
    """LM-head timings of one way of calling it (calls or rows), by the words the head knows."""
    found: dict[int, list[Point]] = {}
    for task, point in measurement.points.items():
        if task.form == form:
            found.setdefault(task.vocab, []).append(point)
    return {vocab: sorted(found[vocab], key=lambda point: point.task.length) for vocab in sorted(found)}


def targets(measurement: Measurement, context: int) -> list[Point]:
    """Target passes by rows, behind the measured context nearest to `context`."""
    found = [point for task, point in measurement.points.items() if task.form == "target"]
    nearest = min((p.task.context for p in found), key=lambda c: abs(c - context), default=0)
    return sorted((p for p in found if p.task.context == nearest), key=lambda point: point.task.length)


def at(points: Sequence[Point], length: float, value: Callable[[Point], float] = lambda point: point.median) -> float:
    """A value at any length: straight lines between the measured ones, and on beyond them; 0 if there are none."""
    known = [(float(p.task.length), float(value(p))) for p in points]
    if len(known) < 2:
        return known[0][1] if known else 0.0
    place = next((i for i, (x, _) in enumerate(known[1:], 1) if x >= length), len(known) - 1)
    (x0, y0), (x1, y1) = known[place - 1], known[place]
    return max(0.0, y0 + (y1 - y0) * (length - x0) / (x1 - x0))


def by_context(measurement: Measurement, length: int) -> dict[Line, list[Point]]:
    """The curves of drafts of one length over the cached tokens, where more than one context was measured."""
    found: dict[Line, list[Point]] = {}
    for line in lines(measurement):
        points = [at_length for at_length in every_context(measurement, line) if at_length.task.length == length]
        if len(points) > 1:
            found[line] = sorted(points, key=lambda p: p.task.context)
    return found


def every_context(measurement: Measurement, line: Line) -> list[Point]:
    known = measurement.points.items()
    return [p for task, p in known if (task.method, task.form, task.layers) == (line.method, line.form, line.layers)]


def passes_by_context(measurement: Measurement, rows: int) -> list[Point]:
    """Target passes of so many rows, fewest cached tokens first."""
    found = [p for task, p in measurement.points.items() if (task.form, task.length) == ("target", rows)]
    return sorted(found, key=lambda p: p.task.context)


def budgets(measurement: Measurement) -> list[Point]:
    """Trees by how many nodes they keep, behind the shortest context they were measured at."""
    found = [point for task, point in measurement.points.items() if task.form == "budget"]
    least = min((p.task.context for p in found), default=0)
    return sorted((p for p in found if p.task.context == least), key=lambda p: p.task.length)


def growth(measurement: Measurement, line: Line, context: int, short: int, long: int) -> float | None:
    """Time of a draft of `long` tokens over that of `short`; None where either was not measured."""
    by_length = {p.task.length: p.median for p in curve(measurement, line, context)}
    if short not in by_length or long not in by_length or not by_length[short]:
        return None
    return by_length[long] / by_length[short]


def claims(measurement: Measurement, context: int, methods: Mapping[str, Method]) -> dict[Line, Ratio]:
    """Time of 16 tokens over that of 4 for the curves something is claimed about, each beside its bar."""
    found: dict[Line, Ratio] = {}
    for line in lines(measurement):
        curves = methods[line.method].curves if line.method in methods else ()
        ratio = growth(measurement, line, context, 4, 16)
        for known in (c for c in curves if (c.form, c.layers) == (line.form, line.layers)):
            if ratio and (known.at_least or known.at_most):
                better = "higher" if known.at_least else "lower"
                found[line] = Ratio(ratio, known.at_least or known.at_most, better)
    return found
