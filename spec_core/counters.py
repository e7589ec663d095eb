"""What an operator wants to know of a queue: counts in the OpenMetrics format, and a line of log for every run."""

import json
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from spec_core.job import Job, Spec
from spec_core.trace import Trace

LOG = logging.getLogger("draftscope.runs")
BARS = (1.0, 5.0, 15.0, 60.0, 300.0)  # seconds, of the histogram of waits


@dataclass
class Counters:
    """Counted since the server started. with_prompts: whether the log may hold what readers wrote."""

    with_prompts: bool = False
    runs: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    tokens: Counter[str] = field(default_factory=Counter[str])
    steps: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    refusals: Counter[str] = field(default_factory=Counter[str])
    workers: int = 0
    waited: Counter[float] = field(default_factory=Counter[float])
    wait_count: int = 0
    wait_seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, job: Job) -> None:
        """A run is over."""
        method = job.spec.pace if isinstance(job.spec, Spec) else "latency"
        with self.lock:
            self.runs[method, job.state] += 1
            if job.failure:
                self.errors[job.failure.kind] += 1
            if job.begun:
                self.hear_wait(job.begun - job.asked)
            if job.trace:
                self.hear_steps(method, job.trace)
        LOG.info(json.dumps(self.line(job, method), ensure_ascii=False))

    def hear_wait(self, seconds: float) -> None:
        self.wait_count, self.wait_seconds = self.wait_count + 1, self.wait_seconds + seconds
        for bar in (bar for bar in BARS if seconds <= bar):
            self.waited[bar] += 1

    def hear_steps(self, method: str, trace: Trace) -> None:
        """The prefill is no step of drafting, so tokens over steps is tau."""
        self.steps[method] += len(trace.steps[1:])
        self.tokens[method] += sum(len(step.committed) for step in trace.steps[1:])

    def hired(self) -> None:
        with self.lock:
            self.workers += 1

    def refused(self, kind: str) -> None:
        with self.lock:
            self.refusals[kind] += 1
        LOG.info(json.dumps({"event": "refused", "kind": kind}))

    def line(self, job: Job, method: str) -> dict[str, object]:
        """A run for the log: nothing a reader wrote, unless the operator asked for it."""
        end = job.trace.end if job.trace else None
        said: dict[str, object] = {"event": "run", "id": job.id, "method": method, "state": job.state}
        said |= {"waited_s": round(max(0.0, job.begun - job.asked), 2), "failure": job.failure and job.failure.kind}
        said |= {"tokens": end.tokens, "ms": end.ms, "memory_mb": end.peak_memory_mb} if end else {}
        if self.with_prompts and isinstance(job.spec, Spec):
            said["prompt"] = job.spec.prompt
        return said

    def openmetrics(self, waiting: int, running: int) -> str:
        with self.lock:
            return "\n".join([*self.lines(waiting, running), "# EOF", ""])

    def lines(self, waiting: int, running: int) -> Iterator[str]:
        yield from family("runs", "counter", "Runs that are over.")
        yield from (f'draftscope_runs_total{{method="{m}",state="{s}"}} {n}' for (m, s), n in self.runs.items())
        yield from counted("tokens", "Tokens committed after the prefill.", "method", self.tokens)
        yield from counted("steps", "Steps after the prefill.", "method", self.steps)
        yield from family("tau", "gauge", "Tokens a step, the target's own included.")
        yield from (f'draftscope_tau{{method="{m}"}} {self.tokens[m] / n:.4f}' for m, n in self.steps.items() if n)
        yield from counted("errors", "Runs that failed or were cut short, by reason.", "kind", self.errors)
        yield from counted("refusals", "Orders the queue did not take, by reason.", "kind", self.refusals)
        yield from family("workers", "counter", "Worker processes started.")
        yield f"draftscope_workers_total {self.workers}"
        yield from family("queue", "gauge", "Runs now waiting or in hand.")
        yield f'draftscope_queue{{state="waiting"}} {waiting}'
        yield f'draftscope_queue{{state="running"}} {running}'
        yield from family("wait_seconds", "histogram", "Time from order to start.")
        yield from (f'draftscope_wait_seconds_bucket{{le="{bar}"}} {self.waited[bar]}' for bar in BARS)
        yield f'draftscope_wait_seconds_bucket{{le="+Inf"}} {self.wait_count}'
        yield f"draftscope_wait_seconds_count {self.wait_count}"
        yield f"draftscope_wait_seconds_sum {self.wait_seconds:.3f}"


def family(name: str, kind: str, help: str) -> Iterator[str]:
    yield f"# TYPE draftscope_{name} {kind}"
    yield f"# HELP draftscope_{name} {help}"


def counted(name: str, help: str, label: str, found: Counter[str]) -> Iterator[str]:
    yield from family(name, "counter", help)
    yield from (f'draftscope_{name}_total{{{label}="{key}"}} {n}' for key, n in found.items())
