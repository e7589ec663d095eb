"""The traces the app ships: one prompt, one method, one preset per file, all in the name."""

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from spec_core.trace import Trace, TraceError, load

FOLDER = Path(__file__).parents[2] / "assets" / "traces"


@dataclass(frozen=True)
class Recording:
    """PROMPT.METHOD.PRESET.jsonl.gz."""

    prompt: str
    method: str
    preset: str

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.prompt}.{self.method}.{self.preset}.jsonl.gz"


@st.cache_data(show_spinner=False)
def recordings() -> list[Recording]:
    """What is there, by name alone: nothing is read yet."""
    names = sorted(path.name.removesuffix(".jsonl.gz").split(".") for path in FOLDER.glob("*.jsonl.gz"))
    return [Recording(*name) for name in names if len(name) == 3]


def prompts() -> list[str]:
    return list(dict.fromkeys(recording.prompt for recording in recordings()))


def methods(prompt: str, preset: str) -> list[str]:
    return [one.method for one in recordings() if (one.prompt, one.preset) == (prompt, preset)]


@st.cache_data(show_spinner=False, max_entries=64)
def recording(prompt: str, method: str, preset: str) -> Trace | None:
    """One of them, read; None where the file is broken."""
    try:
        return load(Recording(prompt, method, preset).path)
    except TraceError:
        return None


def lanes(prompt: str, preset: str, order: list[str]) -> list[Trace]:
    """All methods on one prompt, in the methods' own order."""
    found = [recording(prompt, method, preset) for method in methods(prompt, preset)]
    whole = [trace for trace in found if trace]
    return sorted(whole, key=lambda t: order.index(t.header.method.key) if t.header.method.key in order else len(order))
