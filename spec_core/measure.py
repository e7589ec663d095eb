"""`python -m spec_core.measure`: what a draft costs by length, an LM head by how it is called, a target by its rows.

The real networks run through the drafters and the clock that decoding uses; only the text is missing, since time does
not depend on it: caches hold random rows. Everything is timed in turns, so that whatever else the machine does hits all
alike; medians and quartiles settle as rounds go by.
"""

import datetime
import platform
import re
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Literal, Protocol

import msgspec
import torch
from torch import Tensor

from models.cache import KVCache
from models.heads import new_cache
from models.layers import Linear
from models.load import Model, Network, load_network, load_target
from models.shapes import SHAPES, load_shape, random_network
from spec_core.command import Parser, guarded, say
from spec_core.contention import Watch
from spec_core.contract import Clock, Curve, Draft, Drafter, Method
from spec_core.measurement import (
    Finish,
    Line,
    Measurement,
    Part,
    Point,
    Setup,
    Task,
    claims,
    contexts,
    curve,
    grown,
    growth,
    lengths,
    lines,
    save,
    targets,
)
from spec_core.methods import discover
from spec_core.playback import fresh
from spec_core.report import Ratio
from spec_core.run import RequestError, drafter_card, peak_memory_mb, target_card
from spec_core.stopwatch import stopwatch
from spec_core.trace import PassKind, Sampling, tidy
from spec_core.tree import chain
from spec_core.verify import verify

LENGTHS = (1, 2, 4, 6, 8, 12, 16, 24, 31)
CONTEXTS = (256,)
ROWS = (1, 2, 4, 8, 16, 32, 64)  # of a target pass
MOST_LENGTH, MOST_ROUNDS, MOST_NODES = 31, 101, 256
FAR_LENGTH = 8  # of the drafts timed at contexts that are there only to show what context costs
MOST_ROWS = 512  # a tree of 31 levels appends ten rows for each
ROUNDS = 9
KINDS: tuple[PassKind, ...] = ("draft", "head", "target", "host")

Split = dict[PassKind, float]


@dataclass(frozen=True)
class Subject:
    """What is measured: a target and a drafter network per kind. depth: layers the target has when it is whole."""

    model: Model
    networks: dict[str, Network]
    untrained: frozenset[str]
    depth: int

    @property
    def scale(self) -> float:
        """How many of the target's layers each layer that is here stands for."""
        return self.depth / self.model.decoder.config.layers


@dataclass(frozen=True)
class Plan:
    """lengths: of drafts, in tokens. contexts: cached tokens they look back on. rounds: timings of each task.

    far: contexts at which drafts of one length are timed. budgets: nodes of trees, timed behind the first context.
    """

    lengths: Sequence[int] = LENGTHS
    contexts: Sequence[int] = CONTEXTS
    rounds: int = ROUNDS
    far: Sequence[int] = ()
    budgets: Sequence[int] = ()

    def check(self, model: Model) -> None:
        most = model.decoder.config.max_positions
        if not self.lengths or not all(1 <= length <= MOST_LENGTH for length in self.lengths):
            raise RequestError(f"Draft lengths run from 1 to {MOST_LENGTH}.")
        if not self.contexts or not all(1 <= context <= most for context in (*self.contexts, *self.far)):
            raise RequestError(f"Context lengths run from 1 to {most} with this target.")
        if not all(1 <= nodes <= MOST_NODES for nodes in self.budgets):
            raise RequestError(f"Budgets of a tree run from 1 to {MOST_NODES} nodes.")
        if not 1 <= self.rounds <= MOST_ROUNDS:
            raise RequestError(f"Rounds run from 1 to {MOST_ROUNDS}.")


@dataclass
class Work:
    """A task, how to do it once, and what it took each time. `do` returns the rows a target would have to read."""

    task: Task
    do: Callable[[Clock], int]
    splits: list[Split] = field(default_factory=list[Split])
    rows: int = 0
    width: int = 0

    def time(self, clock: Clock, scale: float) -> Point:
        """Once more; the first time is done twice, because what is cold is slow."""
        for _ in range(1 if self.splits else 2):
            clock.start()
            self.rows = self.do(clock)
            clock.fill()
        self.width = max((one.rows for one in clock.passes if one.kind == "head"), default=0)
        self.splits.append(split_of(clock, scale if self.task.form == "target" else 0.0))
        return self.point()

    def point(self) -> Point:
        totals = [sum(split.values()) for split in self.splits]
        low, _, high = quantiles(totals, n=4, method="inclusive") if len(totals) > 1 else totals * 3
        middle = tidy(median(totals))
        kinds: list[PassKind] = [kind for kind in KINDS if any(kind in split for split in self.splits)]
        parts: Split = {kind: tidy(median(split.get(kind, 0.0) for split in self.splits)) for kind in kinds}
        return Point(
            self.task,
            middle,
            min(tidy(low), middle),
            max(tidy(high), middle),
            len(totals),
            parts,
            self.rows,
            self.width,
        )


def split_of(clock: Clock, scale: float) -> Split:
    """The clock's passes by kind, recording left out. With a `scale` they are a target's: layers that many times over,
    its LM head once, both under `target`."""
    split: Split = {}
    for one in (one for one in clock.passes if one.kind != "record"):
        split[one.kind] = split.get(one.kind, 0.0) + one.ms
    if scale:
        split["target"] = split.get("target", 0.0) * scale + split.pop("head", 0.0)
    return split


def noise(model: Model, *shape: int) -> Tensor:
    """Random numbers in the model's type: what a timed pass reads must be finite and need not mean anything."""
    return torch.randn(shape, device=model.device).to(model.decoder.dtype)


def settled(cache: KVCache, context: int) -> KVCache:
    """An empty cache with `context` random rows in it, and room for the largest draft."""
    cache.reserve(context + MOST_ROWS)
    cache.keys.normal_()
    cache.values.normal_()
    cache.advance(context)
    return cache


class Caching(Drafter, Protocol):
    """A drafter that keeps rows of sure tokens; the drafts of one network share them here."""

    cache: KVCache


def draft_work(subject: Subject, method: Method, form: Curve, length: int, cache: KVCache) -> Work:
    """A whole draft of `length` tokens, behind a step that added one token."""
    model, network = subject.model, subject.networks[method.network]
    drafter: Caching = method.build(model, network, method.settle(form.knobs(length)), Sampling())  # type: ignore
    drafter.cache, context = cache, cache.length
    rng, feature = torch.Generator(), noise(model, 1, len(drafter.layers) * model.decoder.config.hidden)

    def do(clock: Clock) -> int:
        cache.crop(context)
        drafter.observe([0], feature, clock)
        clock.start()
        return len(drafter.propose(0, rng, clock).tree.kept)

    return Work(Task(form.form, length, context, method.key, form.layers), do)


def head_works(model: Model, head: Linear, words: int, length: int) -> list[Work]:
    """One LM head: once for each of `length` tokens, and once for all of them."""
    rows = noise(model, length, head.in_features)
    singles = [row[None] for row in rows]

    def calls(clock: Clock) -> int:
        with clock.measure("head", 1):
            for row in singles:
                head(row)
        return 0

    def once(clock: Clock) -> int:
        with clock.measure("head", length):
            head(rows)
        return 0

    return [Work(Task("calls", length, vocab=words), calls), Work(Task("rows", length, vocab=words), once)]


def target_work(model: Model, rows: int, cache: KVCache) -> Work:
    """A chain of `rows` nodes through the target, its LM head, and the greedy verdict on it."""
    decoder, context = model.decoder, cache.length
    ids = torch.zeros((1, rows), dtype=torch.long, device=model.device)
    places = torch.arange(context, context + rows, device=model.device)[None]
    draft, rng = Draft(chain(0, [0] * (rows - 1), [0.0] * (rows - 1), [0] * (rows - 1))), torch.Generator()

    def do(clock: Clock) -> int:
        with clock.measure("target", rows, decoder.config.layers):
            out = decoder(ids, places, cache)
        with clock.measure("head", rows):
            logits = decoder.lm_head(out.last[0]).float()
        verify(draft, logits, Sampling(), rng)
        cache.crop(context)
        return rows

    return Work(Task("target", rows, context), do)


def heads_of(subject: Subject) -> dict[int, Linear]:
    """Every LM head that a drafter reads its guesses off, by the words it knows."""
    full = subject.model.decoder
    found: dict[int, Linear] = {}
    for network in subject.networks.values():
        own = getattr(network.module, "lm_head", None)  # most read theirs off the target's
        found[network.head_rows or full.config.vocab] = own or full.lm_head
    return found


def works(subject: Subject, plan: Plan) -> Iterator[Work]:
    """Everything to be timed, each context behind the other."""
    near = sorted(set(plan.contexts))
    for context in near:
        budgets = sorted(set(plan.budgets)) if context == near[0] else []
        yield from works_behind(subject, sorted(set(plan.lengths)), context, budgets)
    for context in sorted(set(plan.far) - set(near)):
        yield from works_behind(subject, [FAR_LENGTH], context)
    for length in sorted(set(plan.lengths)):
        for words, head in heads_of(subject).items():
            yield from head_works(subject.model, head, words, length)


def works_behind(subject: Subject, lengths: list[int], context: int, budgets: Sequence[int] = ()) -> Iterator[Work]:
    """Drafts and target passes behind `context` tokens; curves of more layers than a network has are left out.

    Of a budget of n nodes the target reads n + 1 rows.
    """
    model = subject.model
    like = model.decoder.model.embed_tokens.weight
    caches = {kind: settled(fresh(new_cache(n.module, 0, like)), context) for kind, n in subject.networks.items()}
    for method in (method for method in discover().values() if method.network in caches):
        most, cache = subject.networks[method.network].layers, caches[method.network]
        for form in (form for form in method.curves if form.layers <= most):
            for length in budgets if form.form == "budget" else lengths:
                yield draft_work(subject, method, form, length, cache)
    own = settled(fresh(model.decoder.new_cache(0)), context)
    yield from (target_work(model, rows, own) for rows in sorted({*ROWS, *(nodes + 1 for nodes in budgets)}))


def setup(subject: Subject, timings: int) -> Setup:
    model = subject.model
    used = {key: subject.networks[m.network] for key, m in discover().items() if m.curves and m.network}
    return Setup(
        id=uuid.uuid4().hex[:12],
        date=datetime.date.today().isoformat(),
        device=model.device_name,
        dtype=model.number_type,
        threads=torch.get_num_threads(),
        versions={"python": platform.python_version(), "torch": str(torch.__version__)},
        target=msgspec.structs.replace(target_card(model), layers=subject.depth),
        drafters={key: drafter_card(model, network) for key, network in used.items()},
        untrained=sorted(key for key, network in used.items() if network.kind in subject.untrained),
        built=model.decoder.config.layers,
        timings=timings,
    )


def measure(subject: Subject, plan: Plan, cancelled: Callable[[], bool] = lambda: False) -> Generator[Part, None, None]:
    """The parts of a measurement as they come to be. RequestError comes before the first.

    `cancelled` is asked before every single timing; what is called off still ends with its Finish.
    """
    plan.check(subject.model)
    with torch.inference_mode():
        todo = list(works(subject, plan))
    head = setup(subject, len(todo) * plan.rounds)
    yield head
    watch, clock = Watch(), Clock(stopwatch(subject.model.device))
    reason = yield from rounds(todo, plan.rounds, clock, subject.scale, cancelled)
    if watch.contended():
        yield msgspec.structs.replace(head, contended=True)
    yield Finish(reason, round(watch.ms, 1), peak_memory_mb(subject.model))


def rounds(
    todo: list[Work], count: int, clock: Clock, scale: float, cancelled: Callable[[], bool]
) -> Generator[Point, None, Literal["done", "cancelled"]]:
    """Time every work once per round; yields its Point so far each time."""
    for _ in range(count):
        for work in todo:
            if cancelled():
                return "cancelled"
            with torch.inference_mode():
                point = work.time(clock, scale)
            yield point
    return "done"


def equipped(model: Model, load: Callable[[Model, str], Network] = load_network) -> Subject:
    """A target with its own drafters; where it has none, random ones in the papers' proportions."""
    kinds = dict.fromkeys(method.network for method in discover().values() if method.curves)
    missing = frozenset(kind for kind in kinds if kind not in model.drafters)
    networks = {
        kind: random_network(kind, model) if kind in missing else load(model, model.drafters[kind]) for kind in kinds
    }
    return Subject(model, networks, missing, model.decoder.config.layers)


def of_shape(key: str, device: str = "auto", dtype: str = "auto", whole: bool = False) -> Subject:
    """A published pair's sizes with random weights; TooBig where they do not fit."""
    found = equipped(load_shape(key, device, dtype, whole))
    return replace(found, depth=SHAPES[key]["num_hidden_layers"])


# ---- the command


def collect(parts: Generator[Part, None, None]) -> Measurement:
    """All parts as one measurement in memory, with a word on every tenth of the way."""
    found: Measurement | None = None
    told = 0
    for part in parts:
        found = grown(found, part)
        if isinstance(part, Point) and (tenth := int(10 * found.done)) > told:
            told = tenth
            say(f"{10 * tenth} % of {found.setup.timings} timings")
    assert found
    return found


def title(line: Line) -> str:
    layers = f", {line.layers} layer{'s' * (line.layers > 1)}" if line.form == "block" else ""
    return f"{line.method} {line.form}{layers}"


def rows_of(measurement: Measurement, context: int) -> list[str]:
    """The table of one context: milliseconds of a draft by length, then what the growth from 4 tokens is."""
    known = lengths(measurement)
    out = [f"behind {context} tokens, ms of a draft of" + "".join(f"{n:>10}" for n in known) + "   x8/x4  x16/x4"]
    for line in lines(measurement):
        times = {p.task.length: p.median for p in curve(measurement, line, context)}
        ratios = (growth(measurement, line, context, 4, long) for long in (8, 16))
        cells = "".join(f"{times[n]:10.2f}" if n in times else f"{'-':>10}" for n in known)
        out.append(f"{title(line):>35}{cells}" + "".join(f"{r:8.2f}" if r else f"{'-':>8}" for r in ratios))
    passes = targets(measurement, context)
    out.append("target pass of rows " + ", ".join(f"{p.task.length}: {p.median:.1f} ms" for p in passes))
    return out


def verdicts(found: dict[Line, Ratio]) -> list[str]:
    return [
        f"{title(line)}: 16 tokens cost {one.value:.2f} times 4, bar {one.bar:.1f} ({one.better} is better): "
        + ("holds" if one.holds else "does not hold")
        for line, one in found.items()
    ]


def table(measurement: Measurement) -> str:
    """The measurement for a terminal."""
    head = measurement.setup
    out = [f"{head.target.id} on {head.device}, {head.threads} threads, {head.dtype}"]
    if head.untrained:
        out.append(f"random weights, which cost the same time as trained ones: {', '.join(head.untrained)}")
    if head.modelled:
        out.append(f"MODEL: target times are {head.target.layers} times one layer's, with one LM head")
    if head.contended:
        out.append("the processor was busy with other work too: times are longer than they should be")
    for context in contexts(measurement):
        out += rows_of(measurement, context) + verdicts(claims(measurement, context, discover()))
    return "\n".join(out)


def numbers(text: str) -> list[int]:
    """`1,2,4` → numbers, nothing → none; RequestError for anything else."""
    try:
        return [int(part) for part in text.split(",") if text]
    except ValueError as error:
        raise RequestError(f"{text!r} is no list of numbers: write them with commas between, as in 1,2,4") from error


def arguments() -> Parser:
    parser = Parser(prog="python -m spec_core.measure", description="Time drafts by length, heads, and the target.")
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--shape", help=f"instead: random weights in the shape of {', '.join(SHAPES)}")
    parser.add_argument("--whole", action="store_true", help="with --shape: build every layer of the target")
    parser.add_argument("--dtype", default="auto", help="with --shape: auto, fp32, bf16 or fp16")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="draft lengths, 1 to 31")
    parser.add_argument("--context", default=",".join(map(str, CONTEXTS)), help="cached tokens; several with commas")
    parser.add_argument("--far", default="", help=f"contexts for drafts of {FAR_LENGTH} tokens only, with commas")
    parser.add_argument("--budgets", default="", help="nodes of published trees, with commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"timings of each task ({ROUNDS})")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, metavar="FILE", help="JSON Lines, gzipped if it ends in .gz; or a folder")
    return parser


def file_name(measurement: Measurement) -> str:
    """Target and device, as a file may be called."""
    head = measurement.setup
    words = f"{head.target.id} on {head.device} in {head.dtype}".lower()
    return re.sub(r"[^a-z0-9.]+", "-", words).strip("-") + ".jsonl.gz"


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments().parse_args(argv)
    far, budgets = numbers(args.far), numbers(args.budgets)
    plan = Plan(numbers(args.lengths), numbers(args.context), args.rounds, far, budgets)
    if args.shape:
        subject = of_shape(args.shape, args.device, args.dtype, args.whole)
    else:
        subject = equipped(load_target(args.target, args.device))
    found = collect(measure(subject, plan))
    print(table(found))
    if args.json:
        path = args.json / file_name(found) if args.json.is_dir() else args.json
        save(found, path)
        say(f"written to {path}")
    return 0


def command(argv: Sequence[str] | None = None) -> int:
    return guarded(lambda: main(argv))


if __name__ == "__main__":
    raise SystemExit(command())
