"""What a reader's session remembers between reruns: the job in hand and the runs that are finished."""

from dataclasses import dataclass, field
from typing import Literal

import streamlit as st

from pages.parts.text import Value
from spec_core.trace import End, Header, KnobValue, Sampling, Step, Trace


@dataclass(frozen=True)
class Order:
    """One run somebody asked for. `method` is a key."""

    method: str
    prompt: str
    knobs: dict[str, KnobValue]
    sampling: Sampling
    budget: int


@dataclass(frozen=True)
class Notice:
    """Something that went wrong, as a key of the catalogue, so that it follows the reader's language."""

    key: str
    values: dict[str, Value]


@dataclass
class Desk:
    """`todo`: orders still to run, the first one in hand. `growing`: its parts so far. `traces`: what is shown."""

    todo: list[Order] = field(default_factory=list)
    asked: int = 0
    growing: Trace | None = None
    traces: list[Trace] = field(default_factory=list)
    origin: Literal["measured", "replay"] = "measured"
    notices: list[Notice] = field(default_factory=list)

    def start(self, orders: list[Order]) -> None:
        self.todo, self.asked = orders, len(orders)
        self.show([], "measured")

    def show(self, traces: list[Trace], origin: Literal["measured", "replay"]) -> None:
        self.traces, self.origin, self.notices, self.growing = traces, origin, [], None

    def stop(self) -> None:
        """Give up what is left; what the run in hand has decoded so far is kept and says that it was cut."""
        self.todo = []
        if self.growing and self.growing.steps:
            self.traces.append(cancelled(self.growing))
        self.growing = None

    def in_hand(self, order: Order) -> bool:
        """Stop and a new script may come while the thread of the old one still finishes a step: it asks first."""
        return bool(self.todo) and self.todo[0] is order

    def note(self, order: Order, trace: Trace) -> None:
        """What the run in hand has become so far, for Stop to keep."""
        if self.in_hand(order):
            self.growing = trace

    def finish(self, order: Order, trace: Trace) -> None:
        if self.in_hand(order):
            self.traces.append(trace)
            self.todo, self.growing = self.todo[1:], None

    def fail(self, order: Order, notice: Notice, everywhere: bool) -> None:
        """Say it once, and go on with the next order unless none of them could do better."""
        if self.in_hand(order):
            self.notices += [] if notice in self.notices else [notice]
            self.todo, self.growing = [] if everywhere else self.todo[1:], None


def grown(trace: Trace | None, part: Header | Step | End) -> Trace:
    """`trace` with one more part; a second header corrects the first."""
    if isinstance(part, Header):
        return Trace(part, trace.steps if trace else [])
    assert trace, "a run begins with its header"
    if isinstance(part, Step):
        trace.steps.append(part)
    else:
        trace.end = part
    return trace


def cancelled(trace: Trace) -> Trace:
    steps = list(trace.steps)
    ms = sum(step.ms for step in steps)
    end = End("cancelled", len(steps), sum(len(step.committed) for step in steps), round(ms, 3), 0.0)
    return Trace(trace.header, steps, end)


def desk() -> Desk:
    return st.session_state.setdefault("desk", Desk())
