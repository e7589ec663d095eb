"""What a reader's session remembers between reruns: the runs asked for and what became of them."""

import uuid
from dataclasses import dataclass, field
from typing import Literal

import streamlit as st

from pages.parts.text import Value
from spec_core.trace import KnobValue, Sampling, Trace

Origin = Literal["measured", "replay"]


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
    """`asked`: ids of the runs last asked for. `todo`: those not over, the first in hand. `traces`: what is shown.

    `broken`: ids of runs whose worker broke off, which may be tried again. `old`: the traces are still those of the
    runs before. `fresh`: the pages have yet to turn to new ones.
    """

    asked: list[str] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)
    prompt: str = ""
    traces: list[Trace] = field(default_factory=list)
    origin: Origin = "measured"
    notices: list[Notice] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    old: bool = False
    fresh: bool = False

    def start(self, ids: list[str], prompt: str = "") -> None:
        """What is shown stays until the first of the new runs has something to show instead."""
        self.asked, self.todo, self.prompt = list(ids), list(ids), prompt
        self.notices, self.broken, self.old, self.fresh = [], [], True, False

    def start_again(self, ids: list[str]) -> None:
        """New ids for the broken ones; what the others of their race brought stays."""
        new = dict(zip(self.broken, ids, strict=True))
        self.asked, self.todo = [new.get(id, id) for id in self.asked], list(ids)
        self.notices, self.broken = [], []

    def show(self, traces: list[Trace], origin: Origin) -> None:
        self.traces, self.origin, self.notices, self.broken = traces, origin, [], []
        self.old, self.fresh = False, True

    def settle(self, id: str, trace: Trace | None, notice: Notice | None) -> None:
        """The run in hand is over. What went wrong with several is said once."""
        if self.todo[:1] != [id]:  # the thread of an interrupted script may still have done it
            return
        self.todo = self.todo[1:]
        self.notices += [notice] if notice and notice not in self.notices else []
        if trace:
            self.traces, self.fresh = ([trace], True) if self.old else ([*self.traces, trace], self.fresh)
            self.origin, self.old = "measured", False


def desk() -> Desk:
    return st.session_state.setdefault("desk", Desk())


def owner() -> str:
    """A name for this session, by which the queue shares its time fairly. It says nothing about the reader."""
    return st.session_state.setdefault("owner", uuid.uuid4().hex)
