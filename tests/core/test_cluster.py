"""Runs in a real Ray cluster on this machine: same text, cancellation, a replica killed, a cluster kept busy."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.load import load_network, load_target
from spec_core import cluster
from spec_core.job import Failure
from spec_core.jobs import Hand, Jobs, Limits
from spec_core.methods import find
from spec_core.process import Process
from spec_core.run import Request, chat_prompt, collect, run
from spec_core.trace import ids
from tests.core.runs import Pair, under_way, wait

pytest.importorskip("ray", reason="Ray has no build for this Python")

REPLICA = b"ray::ServeReplica:draftscope"
DELETED = """
import ray
from ray import serve

ray.init(address="auto", namespace="draftscope")
serve.delete("draftscope")
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair.below(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    """A queue with two replicas behind it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTSCOPE_REPLICAS", "2")
        patch.delenv("RAY_ADDRESS", raising=False)
        made = Jobs(hire=cluster.Place, hands=[Hand() for _ in range(cluster.places())])
        yield made
        made.close()
    cluster.leave()
    gone(b"ray::")
    gone(b"gcs_server")


def pids(name: bytes = REPLICA) -> list[int]:
    """Of the replicas, or others, as the system knows them."""
    said = {int(path.parent.name): text(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    return [pid for pid, line in said.items() if name in b" ".join(line.split(b"\0")[:3])]  # not their arguments


def gone(name: bytes) -> None:
    deadline = time.monotonic() + 30
    while pids(name):
        assert time.monotonic() < deadline, "a cluster of our own outlives us"
        time.sleep(0.1)


def text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has just ended
        return b""


@pytest.mark.parametrize("method", ["plain", "lookup", "eagle", "eagle2", "eagle3", "dflash", "ddtree"])
def test_a_run_in_the_cluster_is_the_run_one_would_have_here(jobs: Jobs, pair: Pair, method: str) -> None:
    asked = pair.spec(method, budget=24)
    model = load_target(asked.target, "cpu")
    drafter = load_network(model, asked.drafter) if asked.drafter else None
    here = collect(run(model, drafter, Request(find(method), chat_prompt(model, asked.prompt), {}, asked.sampling, 24)))
    there = wait(jobs, jobs.submit(asked))
    assert (there.state, there.failure) == ("done", None)
    assert there.trace
    assert ids(there.trace) == ids(here)


def test_as_many_runs_go_on_at_once_as_there_are_replicas(jobs: Jobs, pair: Pair) -> None:
    made = jobs.submit_all([pair.spec(budget=400) for _ in range(3)])
    for id in made[:2]:
        wait(jobs, id, under_way)
    last = jobs.snapshot(made[2])
    assert (last.state, last.position) == ("queued", 1)
    for id in made:
        jobs.cancel(id)
    assert [wait(jobs, id).state for id in made] == ["cancelled"] * 3


def test_a_run_cancelled_in_the_cluster_ends_and_keeps_its_trace(jobs: Jobs, pair: Pair) -> None:
    made = jobs.submit(pair.spec(budget=400))
    wait(jobs, made, under_way)
    jobs.cancel(made)
    now = wait(jobs, made)
    assert now.state == "cancelled"
    assert now.trace
    assert now.trace.end
    assert (now.trace.end.reason, now.trace.end.steps) == ("cancelled", len(now.trace.steps))


def test_a_replica_killed_mid_run_is_told_of_and_replaced(jobs: Jobs, pair: Pair) -> None:
    """The run has its message, what waits is served by others, and the same run again has the same text."""
    whole = wait(jobs, jobs.submit(pair.spec(budget=60)))
    assert len(pids()) == 2
    made = jobs.submit_all([pair.spec(budget=400) for _ in range(2)])
    after = jobs.submit(pair.spec(budget=60))
    for id in made:
        wait(jobs, id, under_way)
    for pid in pids():
        os.kill(pid, signal.SIGKILL)
    for id in made:
        now = wait(jobs, id)
        assert (now.state, now.failure and now.failure.kind) == ("failed", "died")
        assert now.trace, "what came before stays"
    again = wait(jobs, after)
    assert again.state == "done"
    assert whole.trace
    assert again.trace
    assert ids(again.trace) == ids(whole.trace)
    assert (jobs.load().status, jobs.load().waiting) == ("ok", 0)


def test_a_replica_that_does_not_listen_is_left_and_replaced(
    jobs: Jobs, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halted while it decodes, it can neither be cancelled nor be waited for."""
    wait(jobs, jobs.submit(pair.spec()))
    made = jobs.submit(pair.spec(budget=400))
    wait(jobs, made, under_way)
    halted = pids()
    for pid in halted:
        os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(jobs, "limits", Limits(grace=0.5))
    jobs.cancel(made)
    now = wait(jobs, made)
    assert now.state == "cancelled"
    assert now.trace
    monkeypatch.setattr(jobs, "limits", Limits())
    assert wait(jobs, jobs.submit(pair.spec())).state == "done"
    assert not set(halted) & set(pids())


def test_a_cluster_that_others_keep_busy_says_so(jobs: Jobs, pair: Pair) -> None:
    """Two servers on one cluster: what is beyond its replicas and its line is handed back, and nobody hangs."""
    other = Jobs(hire=cluster.Place, hands=[Hand() for _ in range(8)])
    asked = [pair.spec(budget=200)] * 8
    made = [(queue, id) for queue in (jobs, other) for id in queue.submit_all(asked)]
    ends = [wait(queue, id) for queue, id in made]
    turned_away = [now for now in ends if now.failure == Failure("busy", {})]
    assert turned_away
    assert len([now for now in ends if now.state == "done"]) == len(ends) - len(turned_away) >= 2
    other.close()


def test_a_failure_in_the_cluster_is_told_as_at_home(jobs: Jobs, pair: Pair, tmp_path: Path) -> None:
    import msgspec

    nowhere = msgspec.structs.replace(pair.spec(), target=str(tmp_path / "nowhere"))
    home = Jobs(hire=Process)
    there, here = wait(jobs, jobs.submit(nowhere)), wait(home, home.submit(nowhere))
    home.close()
    assert there.state == here.state == "failed"
    assert there.failure == here.failure


def test_a_deployment_that_is_lost_is_made_anew(jobs: Jobs, pair: Pair) -> None:
    wait(jobs, jobs.submit(pair.spec()))
    subprocess.run([sys.executable, "-c", DELETED], check=True, capture_output=True)
    assert wait(jobs, jobs.submit(pair.spec())).state == "done"
    assert (jobs.load().status, jobs.load().running) == ("ok", 0)


@pytest.mark.parametrize(("part", "ends"), [("spec_core.replicas", "failed"), ("gcs_server", "done")])
def test_a_cluster_lost_mid_run_is_started_anew(jobs: Jobs, pair: Pair, part: str, ends: str) -> None:
    """Without its client a run has its message; without its head it goes on. The next one has a new cluster."""
    whole = wait(jobs, jobs.submit(pair.spec(budget=60)))
    made = jobs.submit(pair.spec(budget=2000))
    wait(jobs, made, under_way)
    for pid in pids(part.encode()):
        os.kill(pid, signal.SIGKILL)
    now = wait(jobs, made)
    assert (now.state, now.failure and now.failure.kind) == (ends, "died" if ends == "failed" else None)
    assert now.trace, "what came before stays"
    again = wait(jobs, jobs.submit(pair.spec(budget=60)))
    assert again.state == "done"
    assert whole.trace
    assert again.trace
    assert ids(again.trace) == ids(whole.trace)


def test_no_cluster_to_join_is_told_and_a_later_run_has_one(
    jobs: Jobs, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.leave()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    now = wait(jobs, jobs.submit(pair.spec()))
    assert now.failure
    assert (now.failure.kind, "no cluster" in str(now.failure.values["reason"])) == ("died", True)
    monkeypatch.delenv("RAY_ADDRESS")
    assert wait(jobs, jobs.submit(pair.spec())).state == "done"
