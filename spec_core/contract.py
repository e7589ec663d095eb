"""What the loop asks of a target and of a drafter, and what a method's card says. Cards need no torch."""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from spec_core.trace import Card, DraftTree, KnobValue, Pass, PassKind, Refusal, Sampling, tidy

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Knobs = Mapping[str, KnobValue]


class KnobError(Refusal):
    """A knob that does not exist or a value it cannot take; the message lists what would do."""


@dataclass(frozen=True)
class Knob:
    """One setting of a method. `published` is the paper's value; low and high bound numbers, choices list words."""

    name: str
    published: KnobValue
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    def read(self, value: KnobValue) -> KnobValue:
        """`value`, perhaps typed as text, as this knob's kind; KnobError says what would do."""
        kind = type(self.published)
        try:
            found = as_bool(value) if kind is bool else kind(value)
        except ValueError as error:
            raise self.refusal(repr(value)) from error
        if not self.admits(found):
            raise self.refusal(str(value))
        return found

    def refusal(self, value: str) -> KnobError:
        values = {"knob": self.name, "value": value, "low": self.low or 0, "high": self.high or 0}
        kind = "knob" if self.low is not None else "choice"
        return KnobError(f"{self.name}={value}: give {self.range}", kind, {**values, "choices": self.words})

    def admits(self, value: KnobValue) -> bool:
        if isinstance(value, str):
            return value in self.choices
        if isinstance(value, bool):
            return True
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    @property
    def words(self) -> str:
        """What may be said instead of a number."""
        return ", ".join(self.choices) or "true, false"

    @property
    def range(self) -> str:
        if self.choices:
            return f"one of {self.words}"
        if isinstance(self.published, bool):
            return "true or false"
        noun = "a whole number" if isinstance(self.published, int) else "a number"
        return f"{noun} from {self.low:g} to {self.high:g}"


def as_bool(value: KnobValue) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    found = words.get(str(value).lower())
    if found is None:
        raise ValueError(value)
    return found


class Stopwatch:
    """Where a clock takes its time from: here the host, which does its own work."""

    def mark(self) -> Any:
        """This moment."""
        return time.perf_counter()

    def ms(self, begin: Any, end: Any) -> float:
        """Milliseconds from one mark to another; `settle` comes first."""
        return 1000 * (end - begin)

    def settle(self) -> None:
        """Wait until all marks are in the past."""


@dataclass(frozen=True)
class Lap:
    """A pass between two marks; `holes` are the laps within it that are not its own."""

    kind: PassKind
    begin: Any
    end: Any
    rows: int = 0
    layers: int = 0
    holes: "tuple[Lap, ...]" = ()


class Clock:
    """Collects the passes of one step. Whatever lies between two passes is host time, so a step adds up.

    Marks are read when the passes are asked for, not before: a device is never waited for in the middle of a step.
    """

    def __init__(self, watch: Stopwatch | None = None):
        self.watch = watch or Stopwatch()
        self.start()

    def start(self) -> None:
        """A new step begins now."""
        self.watch.settle()
        self.laps: list[Lap] = []
        self.holes: list[Lap] = []
        self.begun = self.last = self.watch.mark()

    def note(self, kind: PassKind, begin: Any, end: Any, rows: int = 0, layers: int = 0) -> None:
        self.laps += [Lap(kind, begin, end, rows, layers, tuple(self.holes)), *self.holes]
        self.holes, self.last = [], end

    def fill(self) -> None:
        """Book the time since the last pass as the host's."""
        self.note("host", self.last, self.watch.mark())

    @contextmanager
    def measure(self, kind: PassKind, rows: int = 0, layers: int = 0) -> Generator[None]:
        """Time one pass of `rows` rows through `layers` layers."""
        self.fill()
        begin, before = self.last, TIMING.set(self)
        try:
            yield
        finally:
            TIMING.reset(before)
        self.note(kind, begin, self.watch.mark(), rows, layers)

    @property
    def passes(self) -> list[Pass]:
        """The passes so far; host time that is none is left out."""
        self.watch.settle()
        found = [self.timed(lap) for lap in self.laps]
        return [one for one in found if one.kind != "host" or one.ms > 0]

    def timed(self, lap: Lap) -> Pass:
        start, length = self.watch.ms(self.begun, lap.begin), self.watch.ms(lap.begin, lap.end)
        length -= sum(self.watch.ms(hole.begin, hole.end) for hole in lap.holes)
        return Pass(lap.kind, tidy(start), tidy(length), lap.rows, lap.layers)


TIMING: ContextVar[Clock | None] = ContextVar("TIMING", default=None)  # the clock that times a pass just now


@contextmanager
def aside() -> Generator[None]:
    """Within a pass: work that is not its own, such as compiling it. Booked as `record`, if anybody times the pass."""
    clock = TIMING.get()
    begin = clock.watch.mark() if clock else None
    yield
    if clock:
        clock.holes.append(Lap("record", begin, clock.watch.mark()))


@dataclass(frozen=True)
class Draft:
    """A tree, and the full q rows where its tokens were really drawn from q.

    q[i] is the law node i's child was drawn from, over the target's vocabulary; the tree is then a chain, and
    verification must use it (`reject`). The rows never enter a trace.
    """

    tree: DraftTree
    q: "list[Tensor] | None" = None


@dataclass(frozen=True)
class Scores:
    """What a target pass says: logits [rows, vocab] and features [rows, width], a row per node asked about."""

    logits: "Tensor"
    features: "Tensor"


class Target(Protocol):
    """The model whose text must come out, for one run."""

    def prefill(self, ids: list[int], clock: Clock) -> Scores:
        """Run the prompt; logits [1, vocab] of its last token, features of every token."""
        ...

    def score(self, tree: DraftTree, clock: Clock) -> Scores:
        """One pass over the kept nodes of a draft, in their order."""
        ...

    def commit(self, rows: list[int]) -> None:
        """Of the rows just scored keep these in the cache: a path from the root."""
        ...


class Drafter(Protocol):
    """What guesses ahead. Made fresh for every run."""

    layers: tuple[int, ...]  # target layers it wants, as indices of Hugging Face's hidden_states

    def observe(self, tokens: list[int], features: "Tensor", clock: Clock) -> None:
        """These tokens are sure now, and the target's features of each [n, width].

        The first call is the prompt; what can be done with it then belongs to the prefill.
        """
        ...

    def propose(self, root: int, rng: "torch.Generator", clock: Clock) -> Draft:
        """Guess what follows `root`, the newest sure token; the target has not seen it yet."""
        ...


Build = Callable[[Any, Any, Knobs, Sampling], Drafter]


@dataclass(frozen=True)
class Curve:
    """A curve of the latency lab: drafts of one form through `layers` draft layers. knobs(K) make one of length K.

    A tree's length is its depth; a budget's is the nodes of a published tree. at_least, at_most: what the papers claim
    of the time of 16 tokens over that of 4; 0 where they claim nothing.
    """

    form: Literal["chain", "tree", "block", "budget"]
    layers: int
    knobs: Callable[[int], Knobs]
    at_least: float = 0.0
    at_most: float = 0.0


@dataclass(frozen=True)
class Variant:
    """A run a lesson needs beside the published one: the published knobs with a few changed, on one shipped prompt."""

    prompt: str
    knobs: Knobs


@dataclass(frozen=True)
class Method:
    """A named recipe. `network` names the kind of drafter weights it needs ("" for none), which methods may share.

    build(model, network, knobs, sampling) makes a drafter for one run: `model` is the target (models.load.Model),
    `network` its loaded drafter (models.load.Network) or None. Torch is imported inside. order: place in lists, 0 is
    the yardstick. sweep: knob settings worth timing on a new device. recorded: knobs that only make a bundled trace
    richer, at no cost that counts. curves: its drafts whose latency is worth plotting against their length.
    drawn: knobs that make a chain really drawn from q, where there are such. lessons: further runs that lessons show,
    by the name they are recorded under.
    """

    key: str
    title: str
    paper: str
    idea: str
    knobs: tuple[Knob, ...]
    build: Build
    network: str = ""
    order: int = field(default=0)
    sweep: tuple[Knobs, ...] = ()
    recorded: Knobs = field(default_factory=dict[str, KnobValue])
    curves: tuple[Curve, ...] = ()
    drawn: Knobs = field(default_factory=dict[str, KnobValue])
    lessons: Mapping[str, Variant] = field(default_factory=dict[str, Variant])

    @property
    def card(self) -> Card:
        return Card(self.key, self.title, self.paper, self.idea)

    @property
    def published(self) -> dict[str, KnobValue]:
        return {knob.name: knob.published for knob in self.knobs}

    def settle(self, given: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
        """All knobs with their values: `given` over the published ones, checked."""
        known = {knob.name: knob for knob in self.knobs}
        for name in given:
            if name not in known:
                have = ", ".join(known) or "none"
                raise KnobError(f"{self.title} has no knob {name!r}; it has: {have}", "unknown", {"knob": name})
        return {name: knob.read(given.get(name, knob.published)) for name, knob in known.items()}
