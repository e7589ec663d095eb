"""The traces the app ships: one prompt, one method, one preset per file, all in the name.

What a method's lessons need beside that stands under a name of their own in place of the preset's: `recording` reads
it, and no list offers it.
"""

from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import streamlit as st

from spec_core.trace import Trace, TraceError, load

FOLDER = Path(__file__).parents[2] / "assets" / "traces"
PRESETS = ("device", "published", "warm", "sampled", "chain")
LOOKS = 6  # recordings read at most where none is named: one prompt's


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
    return [Recording(*name) for name in names if len(name) == 3 and name[2] in PRESETS]


def prompts() -> list[str]:
    return list(dict.fromkeys(recording.prompt for recording in recordings()))


def methods(prompt: str, preset: str) -> list[str]:
    return [one.method for one in recordings() if (one.prompt, one.preset) == (prompt, preset)]


def recording(prompt: str, method: str, preset: str) -> Trace | None:
    """One of them, read; None where the file is broken."""
    return whole(str(Recording(prompt, method, preset).path))


@st.cache_resource(show_spinner=False, max_entries=192)
def whole(path: str) -> Trace | None:
    """One file for all readers, who only read it: as cached data, every look would make a copy, 0.1 s for a big one."""
    try:
        return load(Path(path))
    except TraceError:
        return None


def opening_name() -> list[str]:
    """Prompt, method and preset of the recording the app opens with; nothing where none is named."""
    with suppress(OSError):
        return (FOLDER / "opening.txt").read_text(encoding="utf-8").strip().split(".")
    return []


def opening_prompt() -> str:
    return next(iter(opening_name()), "")


def opening_method() -> str:
    return next(iter(opening_name()[1:]), "")


def opening() -> Trace | None:
    """The recording the app opens with: the one `make traces` named, else the first of a method with a drafter."""
    with suppress(TypeError):
        if trace := recording(*opening_name()):
            return trace
    tuned = (one for one in recordings() if one.preset == "device")
    first = (recording(one.prompt, one.method, one.preset) for one in islice(tuned, LOOKS))
    return next((trace for trace in first if trace and trace.header.drafter), None)


def lanes(prompt: str, preset: str, order: list[str]) -> list[Trace]:
    """All methods on one prompt, in the methods' own order."""
    found = [recording(prompt, method, preset) for method in methods(prompt, preset)]
    whole = [trace for trace in found if trace]
    return sorted(whole, key=lambda t: order.index(t.header.method.key) if t.header.method.key in order else len(order))
