"""A run as plain data: what is asked for, what the worker says of it, and what it is by now. No torch here."""

import gzip
import time
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import Struct

from spec_core import measurement
from spec_core.measurement import Finish, Measurement
from spec_core.trace import End, Header, KnobValue, Refusal, Sampling, Step, Trace, decode_line, encode, grown, read

FAILED = b"!"  # begins the line of a failure; every other line of a worker is a line of the trace

State = Literal["queued", "loading", "running", "done", "failed", "cancelled"]
OVER: tuple[State, ...] = ("done", "failed", "cancelled")


class Full(Refusal):
    """The queue does not take it. kind: full, own (this owner's share), rate, budget, or closed."""


class Gone(Refusal):
    """No such run, or one that ended too long ago."""


class Spec(Struct, frozen=True, tag=True):
    """A run as plain data. target, drafter: what models.load takes, the drafter "" where the method needs none.

    longest: most tokens of a prompt, 0 for as many as the target reads.
    """

    target: str
    drafter: str
    method: str
    knobs: dict[str, KnobValue]
    prompt: str
    kind: Literal["chat", "raw"] = "chat"
    sampling: Sampling = Sampling()
    budget: int = 128
    device: str = "auto"
    longest: int = 0

    @property
    def work(self) -> int:
        """How much there is to do, in pieces that take about the same time in runs of one `pace`."""
        return self.budget

    @property
    def pace(self) -> str:
        return self.method


class LatencySpec(Struct, frozen=True, tag=True):
    """A latency measurement as plain data: of a target with its drafters, or of random weights in a published shape."""

    target: str
    lengths: list[int]
    contexts: list[int]
    rounds: int
    shape: str = ""
    device: str = "auto"

    @property
    def work(self) -> int:
        return len(self.lengths) * len(self.contexts) * self.rounds

    @property
    def pace(self) -> str:
        return f"latency {self.shape}"


class Ask(Struct, frozen=True, tag=True):
    """To the worker: do this."""

    id: str
    spec: Spec | LatencySpec


class Cancel(Struct, frozen=True, tag=True):
    """To the worker: end that run before its next step."""

    id: str


class Failure(Struct, frozen=True):
    """Why a run could not be done.

    kind: that of a Refusal, as long or memory; module: a package is missing; fetch, load: the models cannot be had;
    died: the worker ended; late: it took longer than a run may; exhausted: it ran out of memory; closing: the server is
    going; run: anything else, as the message among the values says. everywhere: no other method would do better.
    """

    kind: str
    values: dict[str, str | int | float]
    everywhere: bool = False


Part = Header | Step | End | measurement.Part


def decode_answer(line: bytes) -> Part | Failure:
    if line.startswith(FAILED):
        return msgspec.json.decode(line[len(FAILED) :], type=Failure)
    return measurement.decode_line(line) if line.startswith(measurement.MARKS) else decode_line(line)


@dataclass(frozen=True)
class Moment:
    """A job at one moment. While it is queued, position: jobs that come first; wait: seconds until its turn, if known.

    A failure of a job that is not "failed" but "cancelled" says why what there is of it is not the whole.
    """

    id: str
    state: State
    position: int
    wait: float | None
    failure: Failure | None

    @property
    def over(self) -> bool:
        return self.state in OVER


@dataclass(frozen=True)
class Snapshot(Moment):
    """A run at one moment, with the parts of its trace so far."""

    spec: Spec
    trace: Trace | None


@dataclass(frozen=True)
class Timing(Moment):
    """A latency measurement at one moment, with what it has found so far."""

    spec: LatencySpec
    measurement: Measurement | None


@dataclass
class Job:
    """What the queue knows of a run. Times are those of time.monotonic(), 0 for what has not happened.

    seen: somebody last asked for it; asked: it came; begun: the worker was told; told: the worker first spoke of it;
    off: it was called off.
    """

    id: str
    spec: Spec | LatencySpec
    owner: str
    turn: int
    asked: float
    seen: float
    begun: float = 0.0
    told: float = 0.0
    off: float = 0.0
    state: State = "queued"
    trace: Trace | None = None
    failure: Failure | None = None
    measurement: Measurement | None = None
    packed: bytes = b""

    @property
    def over(self) -> bool:
        return self.state in OVER

    def pack(self) -> None:
        """Keep a finished trace as its file: a twentieth of the memory, so that a whole class's runs can be kept."""
        if self.trace:
            parts = [self.trace.header, *self.trace.steps, *([self.trace.end] if self.trace.end else [])]
            self.packed, self.trace = gzip.compress(b"".join(map(encode, parts)), 1), None

    def so_far(self) -> Trace | None:
        """Its trace as it is now, the asker's own."""
        if self.packed:
            return read(gzip.decompress(self.packed).splitlines(keepends=True))
        return Trace(self.trace.header, list(self.trace.steps), self.trace.end) if self.trace else None

    def hear(self, part: Part | Failure) -> None:
        """What the worker says of it. A run that was called off before it began is over, whatever comes."""
        if self.over:
            return
        if isinstance(part, Failure):
            self.state, self.failure = "failed", part
            return
        self.state, self.told = "running", self.told or time.monotonic()
        if isinstance(part, Header | Step | End):
            self.trace = grown(self.trace, part)
        else:
            self.measurement = measurement.grown(self.measurement, part)
        if isinstance(part, End | Finish):
            self.state = "cancelled" if part.reason == "cancelled" else "done"

    def break_off(self, failure: Failure) -> None:
        """Its worker is gone, or had to be made to go."""
        self.state = "cancelled" if self.off else "failed"
        self.failure = self.failure if self.off else failure
