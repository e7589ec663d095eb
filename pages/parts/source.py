"""Where traces come from: a run on this machine, or a file. The only place in the app that touches models."""

import functools
import gzip
import io
import os
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pages.parts.hosting import rules
from pages.parts.state import Notice, Order, owner
from pages.parts.text import Value
from spec_core.plausible import check, check_leaves
from spec_core.trace import Trace, TraceError, encode, read

if TYPE_CHECKING:
    from models.found import Found as Folder
    from spec_core.contract import Method
    from spec_core.counters import Counters
    from spec_core.job import Snapshot, Spec, Timing
    from spec_core.jobs import Jobs, Limits, Load
    from spec_core.measurement import Measurement

Found = TypeVar("Found")
TARGET = os.environ.get("DRAFTSCOPE_TARGET", "smollm2-135m")  # a catalog key, a Hugging Face id or a folder

LENGTHS = (1, 2, 4, 8, 12, 16, 24, 31)  # of drafts whose latency is measured
ROUNDS, SHAPE_ROUNDS = 9, 5  # timings of each

BACKENDS = ("local", "ray")
QUEUE: "list[Jobs]" = []  # one, once somebody has asked for it
LOCK = threading.Lock()
DAMAGED = (OSError, EOFError, zlib.error, RecursionError)  # what reading a file somebody made may raise


class Problem(Exception):
    """A run or a file that cannot be had."""

    def __init__(self, key: str, values: Mapping[str, Value]):
        super().__init__(key)
        self.notice = Notice(key, dict(values))


def methods() -> "dict[str, Method]":
    from spec_core.methods import discover

    return discover()


def can_run() -> bool:
    """Torch is here, or a cluster has it; without it the app replays what others recorded."""
    return find_spec("torch") is not None or backend() == "ray"


def has_drafter(method: "Method") -> bool:
    """Whether the drafter `method` needs is here. One on a model hub counts: asking the hub is for the run to do."""
    from models.catalog import BUNDLED, find

    source = find(TARGET).drafters.get(method.network, "")
    bundled = source.startswith("bundled:")
    here = not bundled or (BUNDLED / source.removeprefix("bundled:") / "config.json").exists()
    return not method.network or bool(source) and here


def jobs() -> "Jobs":
    """One queue for all readers: it outlives their sessions.

    It stands in none of Streamlit's caches: any browser may have those emptied, for everybody.
    """
    with LOCK:
        if not QUEUE:
            QUEUE.append(queue())
        return QUEUE[0]


def backend() -> str:
    """What decodes: `local` for a process of this server, `ray` for the replicas of a Ray cluster; else ValueError."""
    found = os.environ.get("DRAFTSCOPE_BACKEND") or "local"
    if found not in BACKENDS:
        raise ValueError(f"DRAFTSCOPE_BACKEND is {found!r}: let it be {' or '.join(BACKENDS)}")
    if found == "ray" and find_spec("ray") is None:
        raise ValueError("DRAFTSCOPE_BACKEND=ray needs Ray: pip install -r requirements-scale.txt")
    return found


def queue() -> "Jobs":
    from spec_core.jobs import Hand, Jobs
    from spec_core.process import Process, Worker

    def hire() -> Worker:
        counters().hired()
        if backend() == "local":
            return Process()
        from spec_core import cluster

        return cluster.Place()

    return Jobs(limits(), hire, [Hand() for _ in range(hands())], counters().hear)


def hands() -> int:
    """How many runs go on at once."""
    if backend() == "local":
        return 1
    from spec_core.cluster import places

    return places()


@functools.cache
def counters() -> "Counters":
    from spec_core.counters import Counters

    return Counters(with_prompts=os.environ.get("DRAFTSCOPE_LOG_PROMPTS") == "1")


def limits() -> "Limits":
    from spec_core.jobs import Limits

    here = rules()
    return Limits(here.waiting, here.own, here.often, tokens=here.tokens, seconds=here.seconds)


def examine(folder: str) -> "Folder":
    """What a drafter folder of the reader's own holds, or the Problem with it."""
    from models.decoder import ConfigError
    from models.found import look

    if not Path(folder).expanduser().is_dir():
        raise Problem("bring.nowhere", {"folder": folder})
    try:
        return look(Path(folder).expanduser())
    except (ConfigError, OSError) as error:
        raise Problem("bring.unreadable", {"reason": str(error)}) from error


def try_on(folder: str) -> None:
    """Read that drafter as the target would need it; the Problem says what does not fit."""
    from models import files, formats
    from models.catalog import find
    from models.decoder import ConfigError, read_config
    from models.fetch import FetchError
    from models.load import resolve

    try:
        target = read_config(files.read_json(resolve(find(TARGET).source) / "config.json"))
        formats.load(Path(folder).expanduser(), target)
    except (ConfigError, FetchError, OSError) as error:
        raise Problem("bring.refused", {"reason": str(error)}) from error


def spec(order: Order, own: str = "") -> "Spec":
    """own: a drafter folder in place of the catalog's, for methods that need one."""
    from models.catalog import find
    from spec_core.job import Spec

    network = methods()[order.method].network
    drafter = str(Path(own).expanduser()) if own and network else find(TARGET).drafters.get(network, "")
    return Spec(
        target=TARGET,
        drafter=drafter,
        method=order.method,
        knobs=order.knobs,
        prompt=order.prompt,
        longest=rules().prompt,
        sampling=order.sampling,
        budget=order.budget,
    )


def load() -> "Load":
    """What the queue has to do, and whether it does it; nothing before the first run."""
    from spec_core.jobs import Load

    return QUEUE[0].load() if QUEUE else Load()


def metrics() -> str:
    """The counts in the OpenMetrics format."""
    now = load()
    return counters().openmetrics(now.waiting, now.running)


def close(patience: float) -> None:
    """The server is going: let what is in hand finish, for so many seconds."""
    if QUEUE:
        QUEUE[0].close(patience)


def submit(orders: Sequence[Order], own: str = "") -> list[str]:
    """Put the runs in the queue, all of them or none; returns their ids. own: a drafter folder of the reader's."""
    return admitted(lambda: jobs().submit_all([spec(order, own) for order in orders], owner()))


def again(ids: Sequence[str]) -> list[str]:
    """The same runs once more; returns their new ids."""
    return admitted(lambda: jobs().again(ids, owner()))


def admitted(ask: Callable[[], list[str]]) -> list[str]:
    """What the queue answers, or the Problem that it is full, or that the run is not there any more."""
    from spec_core.job import Full, Gone

    try:
        return ask()
    except (Full, Gone) as error:
        counters().refused(error.kind)
        raise Problem(f"problem.{error.kind}", error.values) from error


def look(id: str) -> "Snapshot | None":
    """A run as it is now, which also keeps it alive; None for one that is not here any more."""
    return unless_gone(jobs().snapshot, id)


def unless_gone(ask: Callable[[str], Found], id: str) -> Found | None:
    from spec_core.job import Gone

    try:
        return ask(id)
    except Gone:
        return None


def cancel(id: str) -> None:
    from spec_core.job import Gone

    with suppress(Gone):
        jobs().cancel(id)


def measure(shape: str, context: int) -> str:
    """Order a latency measurement of the target, or of a published shape; returns its id."""
    from spec_core.job import LatencySpec

    rounds = SHAPE_ROUNDS if shape else ROUNDS
    spec = LatencySpec(TARGET, list(LENGTHS), [context], rounds, shape)
    return admitted(lambda: [jobs().submit(spec, owner())])[0]


def timing(id: str) -> "Timing | None":
    """A measurement as it is now, which also keeps it alive; None for one that is not here any more."""
    return unless_gone(jobs().timing, id)


def unpacked(raw: bytes) -> list[bytes]:
    """A file's lines, whether it was gzipped or not; OSError, EOFError or zlib.error where it is damaged.

    TraceError where it is too big: a small file may unpack to a huge one.
    """
    most = rules().unpacked_mb * 2**20
    if raw[:2] == b"\x1f\x8b":
        with gzip.open(io.BytesIO(raw)) as file:
            raw = file.read(most + 1)
    if len(raw) > most:
        raise TraceError("This file is too big.", "big")
    return raw.splitlines(keepends=True)


def open_measurement(name: str, raw: bytes) -> "Measurement":
    """An uploaded file's bytes → the measurement in it, or a Problem that says what is wrong with it."""
    from spec_core.measurement import read as read_measurement

    try:
        found = read_measurement(unpacked(raw))
        check_leaves([found.setup, *found.points.values()])
    except TraceError as error:
        raise Problem("lab.schema" if error.kind == "schema" else "lab.bad", {"file": name, **error.values}) from error
    except DAMAGED as error:
        raise Problem("lab.bad", {"file": name}) from error
    return found


def open_file(name: str, raw: bytes) -> Trace:
    """An uploaded file's bytes → the trace in it, or a Problem that says what is wrong with it."""
    try:
        trace = read(unpacked(raw))
        check(trace)
    except TraceError as error:
        raise Problem(f"file.{error.kind}", {"file": name, **error.values}) from error
    except RecursionError as error:
        raise Problem("file.line", {"file": name}) from error
    except DAMAGED as error:
        raise Problem("file.packed", {"file": name}) from error
    return trace


def file_bytes(trace: Trace) -> bytes:
    """The trace as the file a reader takes home."""
    parts = [trace.header, *trace.steps, *([trace.end] if trace.end else [])]
    return gzip.compress(b"".join(encode(part) for part in parts), mtime=0)
