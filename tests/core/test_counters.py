"""What an operator is told: counts that add up, and a log without a word of the readers."""

import json
import logging
from pathlib import Path

import pytest

from spec_core.counters import Counters
from spec_core.job import Failure, Job, LatencySpec, Spec
from spec_core.trace import Trace, ids, load, tau

RECORDED = sorted((Path(__file__).parents[2] / "assets" / "traces").glob("*.eagle3.device.jsonl.gz"))
SECRET = "my own words"


@pytest.fixture(scope="module")
def trace() -> Trace:
    if not RECORDED:
        pytest.skip("no recorded traces are here: run make traces")
    return load(RECORDED[0])


def job(trace: Trace | None, state: str = "done", failure: Failure | None = None, waited: float = 2.0) -> Job:
    made = Job("id", Spec("target", "", "eagle3", {}, SECRET), "owner", 0, asked=10.0, seen=10.0, begun=10.0 + waited)
    made.state, made.trace, made.failure = state, trace, failure  # type: ignore[assignment]
    return made


def value(text: str, name: str) -> float:
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " "))


def test_tau_is_the_traces_own(trace: Trace) -> None:
    counters = Counters()
    counters.hear(job(trace))
    counters.hear(job(trace))
    text = counters.openmetrics(waiting=3, running=1)
    assert value(text, 'draftscope_tau{method="eagle3"}') == pytest.approx(tau(trace), abs=1e-4)
    assert value(text, 'draftscope_tokens_total{method="eagle3"}') == 2 * (len(ids(trace)) - 1)
    assert value(text, 'draftscope_runs_total{method="eagle3",state="done"}') == 2
    assert value(text, 'draftscope_queue{state="waiting"}') == 3


def test_waits_errors_and_refusals_are_counted() -> None:
    counters = Counters()
    counters.hear(job(None, "failed", Failure("died", {}), waited=0.5))
    counters.hear(job(None, waited=70.0))
    counters.hear(Job("id", LatencySpec("target", [1], [64], 1), "owner", 0, 0.0, 0.0, state="cancelled"))
    counters.refused("rate")
    text = counters.openmetrics(0, 0)
    assert value(text, 'draftscope_errors_total{kind="died"}') == 1
    assert value(text, 'draftscope_refusals_total{kind="rate"}') == 1
    assert value(text, 'draftscope_runs_total{method="latency",state="cancelled"}') == 1
    assert [
        value(text, f'draftscope_wait_seconds_bucket{{le="{bar}"}}') for bar in ("1.0", "60.0", "300.0", "+Inf")
    ] == [
        1,
        1,
        2,
        2,
    ]
    assert value(text, "draftscope_wait_seconds_sum") == 70.5


def test_the_text_is_openmetrics(trace: Trace) -> None:
    counters = Counters()
    counters.hear(job(trace))
    lines = counters.openmetrics(0, 0).splitlines()
    assert lines[-1] == "# EOF"
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(set(families)) == len(families)
    for line in (line for line in lines if not line.startswith("#")):
        name, number = line.rsplit(" ", 1)
        assert any(name.startswith(family) for family in families)
        float(number)


@pytest.mark.parametrize("allowed", [False, True])
def test_the_log_holds_no_prompt_unless_it_may(trace: Trace, allowed: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "draftscope")
    counters = Counters(with_prompts=allowed)
    counters.hear(job(trace))
    counters.hear(job(None, "failed", Failure("run", {"message": SECRET})))
    counters.refused("full")
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name.startswith("draftscope")]
    assert [line["event"] for line in lines] == ["run", "run", "refused"]
    assert lines[0]["tokens"] == len(ids(trace))
    assert lines[1]["failure"] == "run"
    assert (SECRET in json.dumps(lines)) == allowed
    assert ("prompt" in lines[0]) == allowed
