"""What a reader's session remembers between reruns: the job in hand and the runs that are finished."""

from dataclasses import dataclass, field
from typing import Literal

import msgspec
import streamlit as st

from pages.parts.text import Value
from spec_core.trace import End, Header, KnobValue, Sampling, Step, Trace, ids


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

    def take(self, part: Header | Step | End) -> Trace:
        """Add a part of the run in hand to what has grown so far; a second header corrects the first."""
        if isinstance(part, Header):
            self.growing = Trace(part, self.growing.steps if self.growing else [])
        assert self.growing, "a run begins with its header"
        if isinstance(part, Step):
            self.growing.steps.append(part)
        elif isinstance(part, End):
            self.growing.end = part
        return self.growing

    def finish(self, trace: Trace) -> None:
        self.traces.append(trace)
        self.todo, self.growing = self.todo[1:], None

    def fail(self, notice: Notice, everywhere: bool) -> None:
        """Say it once, and go on with the next order unless none of them could do better."""
        if notice not in self.notices:
            self.notices.append(notice)
        self.todo, self.growing = [] if everywhere else self.todo[1:], None


def cancelled(trace: Trace) -> Trace:
    ms = sum(step.ms for step in trace.steps)
    end = End("cancelled", len(trace.steps), len(ids(trace)), round(ms, 3), 0.0)
    return msgspec.structs.replace(trace, end=end)


def desk() -> Desk:
    return st.session_state.setdefault("desk", Desk())
