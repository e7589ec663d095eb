"""Where traces come from: a run on this machine, or a file. The only place in the app that touches models."""

import gzip
import os
import threading
import time
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import streamlit as st

from pages.parts.state import Notice, Order
from pages.parts.text import Value
from spec_core.trace import End, Header, Step, Trace, TraceError, decode_line, encode, read

if TYPE_CHECKING:
    from models.load import Model, Network
    from spec_core.contract import Method
    from spec_core.run import Request

TARGET = os.environ.get("DRAFTSCOPE_TARGET", "smollm2-135m")  # a catalog key, a Hugging Face id or a folder
BUSY = 0.4  # cores' worth of other processes' work beside a run that makes its times doubtful


class Problem(Exception):
    """A run or a file that cannot be had. `everywhere`: no other method would do better."""

    def __init__(self, key: str, values: Mapping[str, Value], everywhere: bool = False):
        super().__init__(key)
        self.notice, self.everywhere = Notice(key, dict(values)), everywhere


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


@st.cache_resource(max_entries=2, show_spinner=False)
def target(name: str) -> "Model":
    from models.load import load_target

    return load_target(name)


@st.cache_resource(max_entries=6, show_spinner=False)
def network(name: str, kind: str) -> "Network | None":
    """A drafter network of the target `name`; methods of one kind share it."""
    from spec_core.run import network_for

    method = next(m for m in methods().values() if m.network == kind)
    return network_for(target(name), method)


@st.cache_resource(show_spinner=False)
def device_lock() -> threading.Lock:
    """One run at a time in this process: runs that share a device measure each other."""
    return threading.Lock()


@contextmanager
def turn(waiting: Callable[[], object]) -> Generator[None]:
    """Hold the device. `waiting` is called twice a second as long as another reader's run holds it."""
    lock = device_lock()
    while not lock.acquire(timeout=0.5):
        waiting()
    try:
        yield
    finally:
        lock.release()


def load(order: Order) -> "tuple[Model, Network | None, Method]":
    """Everything a run needs, from the cache where it has been used before."""
    method = methods()[order.method]
    with explained(method, everywhere=True):
        model = target(TARGET)
    with explained(method):
        if not has_drafter(method):
            raise Problem("problem.drafter", {"method": method.title})
        return model, network(TARGET, method.network) if method.network else None, method


@contextmanager
def explained(method: "Method", everywhere: bool = False) -> Generator[None]:
    """Turn what can go wrong in a run into one message; a bug stays an exception."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Problem("problem.module", {"name": str(error.name)}, everywhere=True) from error
    except (ValueError, OSError, RuntimeError) as error:  # what models and spec_core raise, with a message to read
        raise Problem("problem.run", {"method": method.title, "message": str(error)}, everywhere) from error


def live(order: Order) -> Generator[Header | Step | End]:
    """Run `order` here, after a few unmeasured steps to warm up. Each part goes through its line, as a recording's.

    Before the end the header comes once more if something else kept the processor busy meanwhile.
    """
    model, network, method = load(order)
    from spec_core.run import run

    with explained(method):
        warmup, request = requests(model, method, order)
        for _ in run(model, network, warmup):
            pass
        begun, foreign = time.perf_counter(), foreign_seconds()
        head: Header | None = None
        for part in run(model, network, request):
            head = part if isinstance(part, Header) else head
            alone = foreign_seconds() - foreign <= BUSY * (time.perf_counter() - begun)
            if isinstance(part, End) and head and not alone:
                yield through_line(msgspec.structs.replace(head, contended=True))
            yield through_line(part)


def requests(model: "Model", method: "Method", order: Order) -> "tuple[Request, Request]":
    """The few steps that warm up, and the run itself."""
    from spec_core.run import Request, chat_prompt

    prompt = chat_prompt(model, order.prompt)
    most = model.decoder.config.max_positions
    if len(prompt.ids) >= most:
        raise Problem("problem.long", {"tokens": len(prompt.ids), "limit": most}, everywhere=True)
    request = Request(method, prompt, order.knobs, order.sampling, order.budget)
    return replace(request, budget=min(8, order.budget)), request


def through_line(part: Header | Step | End) -> Header | Step | End:
    return decode_line(encode(part))


def foreign_seconds() -> float:
    """Processor time that other processes have had so far on the cores we may use; 0 where the system does not say."""
    try:
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        ticks = sum(int(n) for line in lines if line[0] in cores for n in (*line[1:4], *line[6:9]))
        return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()
    except (OSError, AttributeError, ValueError):
        return 0.0


def open_file(name: str, raw: bytes) -> Trace:
    """An uploaded file's bytes → the trace in it, or a Problem that says what is wrong with it."""
    try:
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        trace = read(raw.splitlines(keepends=True))
    except (TraceError, OSError, EOFError, zlib.error) as error:
        raise Problem("problem.file", {"file": name, "message": str(error)}) from error
    return trace


def file_bytes(trace: Trace) -> bytes:
    """The trace as the file a reader takes home."""
    parts = [trace.header, *trace.steps, *([trace.end] if trace.end else [])]
    return gzip.compress(b"".join(encode(part) for part in parts), mtime=0)
