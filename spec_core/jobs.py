"""Runs that outlive a click: a bounded queue, one worker process that keeps its models, and what each run is by now.

A `Jobs` is one device's line: runs that share a device measure each other, so they go one after another. No torch here.
"""

import atexit
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from spec_core import measurement
from spec_core.measurement import Finish, Measurement
from spec_core.trace import End, Header, KnobValue, Sampling, Step, Trace, decode_line, grown

ROOT = Path(__file__).parents[1]
FAILED = b"!"  # begins the line of a failure; every other line of a worker is a line of the trace

State = Literal["queued", "loading", "running", "done", "failed", "cancelled"]
OVER: tuple[State, ...] = ("done", "failed", "cancelled")


class JobError(RuntimeError):
    """Something this queue cannot do; the message says why."""


class Full(JobError):
    """No room for another run."""


class Gone(JobError):
    """No such run, or one that ended too long ago."""


class Spec(Struct, frozen=True, tag=True):
    """A run as plain data. target, drafter: what models.load takes, the drafter "" where the method needs none."""

    target: str
    drafter: str
    method: str
    knobs: dict[str, KnobValue]
    prompt: str
    kind: Literal["chat", "raw"] = "chat"
    sampling: Sampling = Sampling()
    budget: int = 128
    device: str = "auto"


class LatencySpec(Struct, frozen=True, tag=True):
    """A latency measurement as plain data: of a target with its drafters, or of random weights in a published shape."""

    target: str
    lengths: list[int]
    contexts: list[int]
    rounds: int
    shape: str = ""
    device: str = "auto"


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
    died: the worker ended; run: anything else, as the message among the values says. everywhere: no other method would
    do better.
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
    """A job at one moment. position: jobs that come first, while it is queued."""

    id: str
    state: State
    position: int
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
    """What the queue knows of a run; `seen` is when somebody last asked for it."""

    id: str
    spec: Spec | LatencySpec
    seen: float
    state: State = "queued"
    trace: Trace | None = None
    failure: Failure | None = None
    measurement: Measurement | None = None

    @property
    def over(self) -> bool:
        return self.state in OVER

    def hear(self, part: Part | Failure) -> None:
        """What the worker says of it. A run that was called off before it began is over, whatever comes."""
        if self.over:
            return
        if isinstance(part, Failure):
            self.state, self.failure = "failed", part
            return
        self.state = "running"
        if isinstance(part, Header | Step | End):
            self.trace = grown(self.trace, part)
        else:
            self.measurement = measurement.grown(self.measurement, part)
        if isinstance(part, End | Finish):
            self.state = "cancelled" if part.reason == "cancelled" else "done"


class Worker:
    """The process that decodes, spoken to in lines.

    Not a multiprocessing child: that would run the caller's main script again, which in the app is the app.
    """

    def __init__(self) -> None:
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "spec_core.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths},
        )
        self.lock = threading.Lock()

    def tell(self, message: Ask | Cancel) -> None:
        """One that is gone does not listen: whoever reads its answers will notice."""
        assert self.process.stdin
        with self.lock, suppress(OSError, ValueError):
            self.process.stdin.write(msgspec.json.encode(message) + b"\n")
            self.process.stdin.flush()

    def answers(self) -> Iterator[bytes]:
        """Its lines, until it ends. One that broke off is no line."""
        assert self.process.stdout
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                yield line

    def stop(self) -> str:
        """End it, if it has not ended by itself, and say how it ended."""
        assert self.process.stdin
        assert self.process.stdout
        with self.lock, suppress(OSError):
            self.process.stdin.close()  # which it takes as the order to go
        try:
            status = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process.stdout.close()
        return f"signal {-status}" if status < 0 else f"exit status {status}"


@dataclass
class Jobs:
    """The queue. size: most runs that wait. patience: seconds until a run nobody asks for is given up.

    keep: most finished runs remembered. The one thread behind it starts with the first run.
    """

    size: int = 24
    patience: float = 60.0
    keep: int = 48
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    worker: Worker | None = None
    thread: threading.Thread | None = None
    closed: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def submit(self, spec: Spec | LatencySpec) -> str:
        return self.submit_all([spec])[0]

    def submit_all(self, specs: Sequence[Spec | LatencySpec]) -> list[str]:
        """All of them in this order, or Full and none of them."""
        with self.changed:
            self.drop_abandoned()
            waiting = len(self.waiting())
            if self.closed:
                raise JobError("The queue is closed.")
            if waiting + len(specs) > self.size:
                raise Full(f"{waiting} runs are waiting and the queue holds {self.size}: try again in a while.")
            made = [Job(uuid.uuid4().hex[:12], spec, time.monotonic()) for spec in specs]
            self.jobs |= {job.id: job for job in made}
            self.forget()
            self.start()
            self.changed.notify_all()
            return [job.id for job in made]

    def snapshot(self, id: str) -> Snapshot:
        """The run as it is now; asking keeps it alive."""
        with self.changed:
            job = self.seen(id)
            if not isinstance(job.spec, Spec):
                raise Gone("This is no run but a measurement.")
            trace = Trace(job.trace.header, list(job.trace.steps), job.trace.end) if job.trace else None
            return Snapshot(job.id, job.state, self.position(job), job.failure, job.spec, trace)

    def timing(self, id: str) -> Timing:
        """The measurement as it is now; asking keeps it alive."""
        with self.changed:
            job = self.seen(id)
            if not isinstance(job.spec, LatencySpec):
                raise Gone("This is no measurement but a run.")
            found = job.measurement.copy() if job.measurement else None
            return Timing(job.id, job.state, self.position(job), job.failure, job.spec, found)

    def cancel(self, id: str) -> None:
        with self.changed:
            self.call_off(self.find(id))

    def close(self) -> None:
        """Give up everything and end the worker."""
        with self.changed:
            for job in (job for job in self.jobs.values() if not job.over):
                job.state = "cancelled"
            self.closed = True
            self.changed.notify_all()
            worker = self.worker
        if worker:
            worker.stop()
        if self.thread:
            self.thread.join(timeout=5)
        atexit.unregister(self.close)

    # What follows is called with the lock held, down to the dividing line.

    def find(self, id: str) -> Job:
        if id not in self.jobs:
            raise Gone("This run is not here any more: it ended long ago, or the server has restarted since.")
        return self.jobs[id]

    def seen(self, id: str) -> Job:
        job = self.find(id)
        job.seen = time.monotonic()
        return job

    def waiting(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state == "queued"]

    def position(self, job: Job) -> int:
        if job.state != "queued":
            return 0
        in_hand = any(other.state in ("loading", "running") for other in self.jobs.values())
        return self.waiting().index(job) + in_hand

    def call_off(self, job: Job) -> None:
        """What has not begun to decode is over at once; the worker ends what has, so that its trace has an end."""
        if job.state in ("loading", "running") and self.worker:
            self.worker.tell(Cancel(job.id))
        if job.state in ("queued", "loading"):
            job.state = "cancelled"

    def drop_abandoned(self) -> None:
        late = time.monotonic() - self.patience
        for job in (job for job in self.jobs.values() if not job.over and job.seen < late):
            self.call_off(job)

    def forget(self) -> None:
        over = [job.id for job in self.jobs.values() if job.over]
        for id in over[: max(0, len(over) - self.keep)]:
            del self.jobs[id]

    def start(self) -> None:
        if self.thread is None:
            self.thread = threading.Thread(target=self.serve, name="jobs", daemon=True)
            self.thread.start()
            atexit.register(self.close)

    # ---- the thread of the queue

    def serve(self) -> None:
        while job := self.next():
            try:
                self.perform(job)
            except (OSError, ValueError) as error:  # no worker, or one that talks nonsense
                self.bury(job, str(error))

    def next(self) -> Job | None:
        """Wait for the first job that somebody still wants; None when the queue is closed."""
        with self.changed:
            while not self.closed:
                self.drop_abandoned()
                if waiting := self.waiting():
                    waiting[0].state = "loading"
                    return waiting[0]
                self.changed.wait()
        return None

    def perform(self, job: Job) -> None:
        """Have the worker do it, and note what it says until the run or the worker is over."""
        with self.changed:
            if job.over:
                return
            worker = self.worker = self.worker or Worker()
        worker.tell(Ask(job.id, job.spec))
        for line in worker.answers():
            if self.note(job, line):
                return
        self.bury(job, worker.stop())

    def note(self, job: Job, line: bytes) -> bool:
        """One line of the worker; true if it is the run's last."""
        with self.changed:
            self.drop_abandoned()
            part = decode_answer(line)
            job.hear(part)
            return isinstance(part, End | Finish | Failure)

    def bury(self, job: Job, reason: str) -> None:
        """The worker is gone, and the run with it. The next run starts a new one."""
        with self.changed:
            worker, self.worker = self.worker, None
            job.hear(Failure("died", {"reason": reason}))
        if worker:
            worker.stop()
