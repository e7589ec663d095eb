"""The latency measurements a reader can look at: the recorded ones, and those measured or opened in this session."""

from dataclasses import dataclass, field
from pathlib import Path

import streamlit as st

from pages.parts.cards import Origin
from spec_core.measurement import Measurement, Setup, load
from spec_core.presets import read
from spec_core.trace import TraceError

FOLDER = Path(__file__).parents[2] / "assets" / "measurements"


@dataclass(frozen=True)
class Machine:
    """A measurement and where it came from. `key` names it in an address."""

    key: str
    measurement: Measurement
    origin: Origin

    @property
    def name(self) -> str:
        head = self.measurement.setup
        exact = "" if head.dtype == "float32" else f" · {head.dtype}"
        return f"{head.target.id} · {head.device}{exact}"


@dataclass
class Bench:
    """What this session has besides the recordings: its own measurements, and the id of the one going on."""

    own: list[Machine] = field(default_factory=list[Machine])
    job: str = ""

    def add(self, measurement: Measurement, origin: Origin) -> None:
        """The newest comes first, and replaces one of the same id."""
        key = measurement.setup.id
        self.own = [Machine(key, measurement, origin), *(one for one in self.own if one.key != key)]


def bench() -> Bench:
    return st.session_state.setdefault("bench", Bench())


@st.cache_resource(show_spinner=False, max_entries=16)
def recorded(path: Path, changed: float) -> Measurement | None:
    """A recorded measurement, one for all readers, who only read it; None where the file is broken.

    changed: its time stamp, so that a new file is read.
    """
    try:
        return load(path)
    except TraceError:
        return None


def machines() -> list[Machine]:
    """Own ones first, then what is recorded; what has no curve is left out.

    Of those whole targets come before modelled ones, weights read in float32 before those read in few bits, and the
    machine that the recordings and the fastest settings are of before others.
    """
    ours = read().device
    files = sorted(FOLDER.glob("*.jsonl*"))
    found = [(path, recorded(path, path.stat().st_mtime)) for path in files]
    shipped = [Machine(path.name.split(".jsonl")[0], one, "replay") for path, one in found if one]

    def last(setup: Setup) -> tuple[bool, bool, bool]:
        return setup.modelled, setup.few_bits, setup.device != ours

    shipped.sort(key=lambda one: last(one.measurement.setup))
    known = [*bench().own, *shipped]
    return [one for one in known if any(task.method for task in one.measurement.points)]
