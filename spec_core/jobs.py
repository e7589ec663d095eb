"""Runs that outlive a click: a bounded queue, one worker that keeps its models, and what each run is by now.

A `Jobs` is one device's line: runs that share a device measure each other, so they go one after another. No torch here.
"""

import atexit
import math
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from spec_core.fair import Paces, Turns
from spec_core.job import Ask, Cancel, Failure, Full, Gone, Job, LatencySpec, Snapshot, Spec, Timing, decode_answer
from spec_core.measurement import Finish
from spec_core.process import Process, Worker
from spec_core.trace import End

Status = Literal["ok", "closing", "stuck"]
TICK = 0.5  # seconds between two looks for what is late, abandoned or stuck


@dataclass(frozen=True)
class Limits:
    """What a queue bears. Times are seconds.

    waiting: runs in line, own: of one owner; often: runs one owner may ask for in `span`; tokens: budget of a run.
    loading: until a run's first line, seconds: from there to its end. patience: until a run nobody asks for is given
    up; grace: until a worker that does not end a run called off is made to; rest: until an idle one is sent home.
    kept: finished runs remembered.
    """

    waiting: int = 24
    own: int = 24
    often: int = 600
    span: float = 600.0
    tokens: int = 4096
    loading: float = 900.0
    seconds: float = 900.0
    patience: float = 60.0
    grace: float = 60.0
    rest: float = 1800.0
    kept: int = 400


@dataclass(frozen=True)
class Load:
    """stuck: a thread that should serve the line is gone. waiting, running: runs."""

    status: Status = "ok"
    waiting: int = 0
    running: int = 0


@dataclass
class Hand:
    """One worker's place: the thread that tells it what to do, and the run it has in hand."""

    worker: Worker | None = None
    job: Job | None = None
    idle: float = 0.0
    thread: threading.Thread | None = None


def one_hand() -> list[Hand]:
    return [Hand()]


@dataclass
class Jobs:
    """The queue. hire: makes a worker. hands: as many runs as may go on at once, one for each device.

    heard: told of every run that is over. The threads behind it start with the first run.
    """

    limits: Limits = Limits()
    hire: Callable[[], Worker] = Process
    hands: list[Hand] = field(default_factory=one_hand)
    heard: Callable[[Job], None] = lambda job: None
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    turns: Turns = field(default_factory=Turns)
    paces: Paces = field(default_factory=Paces)
    asked: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    closed: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def submit(self, spec: Spec | LatencySpec, owner: str = "") -> str:
        return self.submit_all([spec], owner)[0]

    def submit_all(self, specs: Sequence[Spec | LatencySpec], owner: str = "") -> list[str]:
        """All of them in this order, or Full and none of them. owner: whose they are, for a fair share."""
        with self.changed:
            now = time.monotonic()
            self.sweep(now)
            self.admit(specs, owner, now)
            made = [Job(uuid.uuid4().hex[:12], spec, owner, self.turns.take(owner), now, now) for spec in specs]
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
                raise Gone("This is no run but a measurement.", "gone")
            place, wait = self.position(job), self.wait(job)
            return Snapshot(job.id, job.state, place, wait, job.failure, job.spec, job.so_far())

    def timing(self, id: str) -> Timing:
        """The measurement as it is now; asking keeps it alive."""
        with self.changed:
            job = self.seen(id)
            if not isinstance(job.spec, LatencySpec):
                raise Gone("This is no measurement but a run.", "gone")
            found = job.measurement.copy() if job.measurement else None
            return Timing(job.id, job.state, self.position(job), self.wait(job), job.failure, job.spec, found)

    def again(self, ids: Sequence[str], owner: str = "") -> list[str]:
        """The same runs once more, as new ones."""
        with self.changed:
            return self.submit_all([self.find(id).spec for id in ids], owner)

    def load(self) -> Load:
        """What there is to do just now."""
        with self.changed:
            return Load(self.status, len(self.line()), len(self.busy()))

    def cancel(self, id: str) -> None:
        with self.changed:
            self.call_off(self.find(id))

    def close(self, patience: float = 0.0) -> None:
        """Take nothing new, hand back what waits, give what is in hand `patience` seconds, end the workers."""
        with self.changed:
            self.closed = True
            for job in self.line():
                job.failure = Failure("closing", {})
                self.call_off(job)
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.busy(), patience)
            for job in self.busy():
                job.off, job.failure = time.monotonic(), Failure("closing", {})
            workers = [hand.worker for hand in self.hands if hand.worker]
        for worker in workers:
            worker.stop()
        for thread in (hand.thread for hand in self.hands if hand.thread):
            thread.join(timeout=5)
        atexit.unregister(self.close)

    # What follows is called with the lock held, down to the dividing line.

    def admit(self, specs: Sequence[Spec | LatencySpec], owner: str, now: float) -> None:
        """Full, and why, where these would be too many or too much."""
        limits, line = self.limits, self.line()
        recent = [moment for moment in self.asked.get(owner, []) if moment > now - limits.span]
        if self.closed:
            raise Full("The queue is closed.", "closed")
        if len(line) + len(specs) > limits.waiting:
            message = f"{len(line)} runs are waiting and the queue holds {limits.waiting}: try again in a while."
            raise Full(message, "full", {"waiting": len(line), "most": limits.waiting})
        if sum(job.owner == owner for job in line) + len(specs) > limits.own:
            raise Full(f"One reader may have {limits.own} runs waiting.", "own", {"most": limits.own})
        if len(recent) + len(specs) > limits.often:
            wait = math.ceil(min(recent, default=now) + limits.span - now)
            raise Full("Too many runs in a short time.", "rate", {"most": limits.often, "wait": wait})
        if any(isinstance(spec, Spec) and spec.budget > limits.tokens for spec in specs):
            raise Full(f"A run may have {limits.tokens} tokens at most.", "budget", {"most": limits.tokens})
        self.asked = {who: times for who, times in self.asked.items() if times and times[-1] > now - limits.span}
        self.asked[owner] = [*recent, *[now] * len(specs)]

    def find(self, id: str) -> Job:
        if id not in self.jobs:
            message = "This run is not here any more: it ended long ago, or the server has restarted since."
            raise Gone(message, "gone")
        return self.jobs[id]

    def seen(self, id: str) -> Job:
        job = self.find(id)
        job.seen = time.monotonic()
        return job

    def line(self) -> list[Job]:
        """What waits, in the order it will be served."""
        return sorted((job for job in self.jobs.values() if job.state == "queued"), key=lambda job: job.turn)

    @property
    def status(self) -> Status:
        if self.closed:
            return "closing"
        return "stuck" if any(hand.thread and not hand.thread.is_alive() for hand in self.hands) else "ok"

    def busy(self) -> list[Job]:
        return [hand.job for hand in self.hands if hand.job]

    @property
    def worker(self) -> Worker | None:
        return self.hands[0].worker

    def position(self, job: Job) -> int:
        """How many come before it, where one hand does all; with more hands, how many more than those can take."""
        if job.state != "queued":
            return 0
        return max(0, self.line().index(job) + len(self.busy()) - len(self.hands) + 1)

    def wait(self, job: Job) -> float | None:
        """Seconds until its turn, as far as the last runs tell; None where there were none yet."""
        if job.state != "queued" or not self.position(job):
            return 0.0
        line, now = self.line(), time.monotonic()
        before = [self.remaining(other, now) for other in (*self.busy(), *line[: line.index(job)])]
        known = [seconds for seconds in before if seconds is not None]
        return sum(known) / len(self.hands) if len(known) == len(before) else None

    def remaining(self, job: Job, now: float) -> float | None:
        """Seconds it will still take."""
        whole = self.paces.seconds(job.spec.pace, job.spec.work)
        return None if whole is None else max(0.0, whole - (now - job.begun if job.begun else 0.0))

    def call_off(self, job: Job) -> None:
        """What has not begun to decode is over at once; the worker ends what has, so that its trace has an end."""
        for hand in self.hands:
            if hand.job is job and hand.worker and not job.over:
                job.off = job.off or time.monotonic()
                hand.worker.tell(Cancel(job.id))
        if job.state in ("queued", "loading"):
            job.state = "cancelled"
            self.heard(job)

    def sweep(self, now: float) -> None:
        """Call off what nobody asks for and what is late; end a worker that does not listen."""
        for job in [job for job in self.jobs.values() if not job.over and job.seen < now - self.limits.patience]:
            self.call_off(job)
        for hand in self.hands:
            if hand.job:
                self.hurry(hand.job, now)
                if hand.worker and hand.job.off and now - hand.job.off > self.limits.grace:
                    hand.worker.kill()

    def hurry(self, job: Job, now: float) -> None:
        """Call it off if it is late: what it has decoded stays, with the reason why there is no more."""
        since, most = (job.told, self.limits.seconds) if job.told else (job.begun, self.limits.loading)
        if not job.over and not job.off and now - since > most:
            job.failure = Failure("late", {"seconds": round(most)})
            self.call_off(job)

    def forget(self) -> None:
        over = [job.id for job in self.jobs.values() if job.over]
        for id in over[: max(0, len(over) - self.limits.kept)]:
            del self.jobs[id]

    def start(self) -> None:
        if self.hands[0].thread is None:
            for hand in self.hands:
                hand.thread = threading.Thread(target=self.serve, args=(hand,), name="jobs", daemon=True)
                hand.thread.start()
            threading.Thread(target=self.look_after, name="jobs' caretaker", daemon=True).start()
            atexit.register(self.close)

    # ---- the threads of the queue

    def look_after(self) -> None:
        while not self.closed:
            time.sleep(TICK)
            with self.changed:
                self.sweep(time.monotonic())

    def serve(self, hand: Hand) -> None:
        while job := self.next(hand):
            try:
                self.perform(hand, job)
            except (OSError, ValueError) as error:  # no worker, or one that talks nonsense
                self.bury(hand, job, str(error))
            self.let_go(hand, job)
        if hand.worker:  # hired while the queue was being closed
            hand.worker.stop()

    def next(self, hand: Hand) -> Job | None:
        """Wait for the job whose turn it is; None when the queue is closed. An idle worker is sent home meanwhile."""
        with self.changed:
            hand.idle = time.monotonic()
            while not self.closed:
                if line := self.line():
                    return self.take(hand, line[0])
                left = hand.idle + self.limits.rest - time.monotonic() if hand.worker else None
                if hand.worker and left is not None and left <= 0:
                    hand.worker.stop()
                    hand.worker = None
                self.changed.wait(left)
        return None

    def take(self, hand: Hand, job: Job) -> Job:
        job.state, job.begun, hand.job = "loading", time.monotonic(), job
        self.turns.serve(job.turn)
        return job

    def perform(self, hand: Hand, job: Job) -> None:
        """Have the worker do it, and note what it says until the run or the worker is over."""
        worker = hand.worker or self.hire()  # without the lock: where it comes from a cluster it takes a while
        with self.changed:
            hand.worker = worker
            if job.over:
                return
        worker.tell(Ask(job.id, job.spec))
        for line in worker.answers():
            if self.note(job, line):
                return
        self.bury(hand, job, worker.stop())

    def note(self, job: Job, line: bytes) -> bool:
        """One line of the worker; true if it is the run's last."""
        part = decode_answer(line)
        with self.changed:
            was_over = job.over
            job.hear(part)
            if job.over and not was_over:
                self.heard(job)
            return isinstance(part, End | Finish | Failure)

    def bury(self, hand: Hand, job: Job, reason: str) -> None:
        """The worker is gone, and the run with it. The next run starts a new one."""
        with self.changed:
            worker, hand.worker = hand.worker, None
            if not job.over:
                job.break_off(Failure("died", {"reason": reason}))
                self.heard(job)
        if worker:
            worker.stop()

    def let_go(self, hand: Hand, job: Job) -> None:
        with self.changed:
            hand.job = None
            job.pack()
            if job.state == "done":
                self.paces.hear(job.spec.pace, job.spec.work, time.monotonic() - job.begun)
            self.changed.notify_all()
