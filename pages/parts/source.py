"""Where traces come from: a run on this machine, or a file. The only place in the app that touches models."""

import gzip
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import streamlit as st

from pages.parts.state import Notice, Order
from pages.parts.text import Value
from spec_core.trace import Trace, TraceError, encode, read

if TYPE_CHECKING:
    from spec_core.contract import Method
    from spec_core.jobs import Jobs, Snapshot, Spec, Timing
    from spec_core.measurement import Measurement

Found = TypeVar("Found")
TARGET = os.environ.get("DRAFTSCOPE_TARGET", "smollm2-135m")  # a catalog key, a Hugging Face id or a folder

LENGTHS = (1, 2, 4, 8, 12, 16, 24, 31)  # of drafts whose latency is measured
ROUNDS, SHAPE_ROUNDS = 9, 5  # timings of each


class Problem(Exception):
    """A run or a file that cannot be had."""

    def __init__(self, key: str, values: Mapping[str, Value]):
        super().__init__(key)
        self.notice = Notice(key, dict(values))


def methods() -> "dict[str, Method]":
    from spec_core.methods import discover

    return discover()


def can_run() -> bool:
    """Torch is here; without it the app replays what others recorded."""
    return find_spec("torch") is not None


def has_drafter(method: "Method") -> bool:
    """Whether the drafter `method` needs is here. One on a model hub counts: asking the hub is for the run to do."""
    from models.catalog import BUNDLED, find

    source = find(TARGET).drafters.get(method.network, "")
    bundled = source.startswith("bundled:")
    here = not bundled or (BUNDLED / source.removeprefix("bundled:") / "config.json").exists()
    return not method.network or bool(source) and here


@st.cache_resource(show_spinner=False)
def jobs() -> "Jobs":
    """One queue for all readers: it outlives their sessions."""
    from spec_core.jobs import Jobs

    return Jobs()


def spec(order: Order) -> "Spec":
    from models.catalog import find
    from spec_core.jobs import Spec

    drafter = find(TARGET).drafters.get(methods()[order.method].network, "")
    return Spec(TARGET, drafter, order.method, order.knobs, order.prompt, "chat", order.sampling, order.budget)


def submit(orders: Sequence[Order]) -> list[str]:
    """Put the runs in the queue, all of them or none; returns their ids."""
    from spec_core.jobs import Full

    try:
        return jobs().submit_all([spec(order) for order in orders])
    except Full as error:
        raise Problem("problem.full", {}) from error


def look(id: str) -> "Snapshot | None":
    """A run as it is now, which also keeps it alive; None for one that is not here any more."""
    return unless_gone(jobs().snapshot, id)


def unless_gone(ask: Callable[[str], Found], id: str) -> Found | None:
    from spec_core.jobs import Gone

    try:
        return ask(id)
    except Gone:
        return None


def cancel(id: str) -> None:
    from spec_core.jobs import Gone

    with suppress(Gone):
        jobs().cancel(id)


def measure(shape: str, context: int) -> str:
    """Order a latency measurement of the target, or of a published shape; returns its id."""
    from spec_core.jobs import Full, LatencySpec

    rounds = SHAPE_ROUNDS if shape else ROUNDS
    try:
        return jobs().submit(LatencySpec(TARGET, list(LENGTHS), [context], rounds, shape))
    except Full as error:
        raise Problem("lab.full", {}) from error


def timing(id: str) -> "Timing | None":
    """A measurement as it is now, which also keeps it alive; None for one that is not here any more."""
    return unless_gone(jobs().timing, id)


def unpacked(raw: bytes) -> list[bytes]:
    """A file's lines, whether it was gzipped or not; OSError, EOFError or zlib.error where it is damaged."""
    return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).splitlines(keepends=True)


def open_measurement(name: str, raw: bytes) -> "Measurement":
    """An uploaded file's bytes → the measurement in it, or a Problem that says what is wrong with it."""
    from spec_core.measurement import read as read_measurement

    try:
        found = read_measurement(unpacked(raw))
    except TraceError as error:
        raise Problem("lab.schema" if error.kind == "schema" else "lab.bad", {"file": name, **error.values}) from error
    except (OSError, EOFError, zlib.error) as error:
        raise Problem("lab.bad", {"file": name}) from error
    return found


def open_file(name: str, raw: bytes) -> Trace:
    """An uploaded file's bytes → the trace in it, or a Problem that says what is wrong with it."""
    try:
        trace = read(unpacked(raw))
    except TraceError as error:
        raise Problem(f"file.{error.kind}", {"file": name, **error.values}) from error
    except (OSError, EOFError, zlib.error) as error:
        raise Problem("file.packed", {"file": name}) from error
    return trace


def file_bytes(trace: Trace) -> bytes:
    """The trace as the file a reader takes home."""
    parts = [trace.header, *trace.steps, *([trace.end] if trace.end else [])]
    return gzip.compress(b"".join(encode(part) for part in parts), mtime=0)
