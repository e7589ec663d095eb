"""Runs in a process of their own: order, cancellation, what nobody waits for, what dies, and what comes back."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import torch

from models.load import load_network, load_target
from spec_core import contention, worker
from spec_core.fair import Paces, Turns
from spec_core.job import FAILED, Failure, Full, Gone, Spec, decode_answer
from spec_core.jobs import Jobs, Limits
from spec_core.methods import find
from spec_core.process import Process
from spec_core.run import Request, chat_prompt, collect, run
from spec_core.trace import End, Header, encode, ids
from tests.core.runs import PATIENCE, Pair, under_way, wait

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair.below(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def process_of(jobs: Jobs) -> subprocess.Popen[bytes]:
    assert isinstance(jobs.worker, Process)
    return jobs.worker.process


def until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def frozen(jobs: Jobs, pair: Pair) -> Iterator[None]:
    """The worker stands still, so that what waits for it can be looked at."""
    wait(jobs, jobs.submit(pair.spec(budget=1)))  # it has begun, and has loaded its model
    process = process_of(jobs)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def states(jobs: Jobs, made: list[str]) -> list[tuple[str, int]]:
    return [(now.state, now.position) for now in map(jobs.snapshot, made)]


@pytest.mark.parametrize("method", ["plain", "dflash"])
def test_a_run_over_there_is_the_run_one_would_have_here(jobs: Jobs, pair: Pair, method: str) -> None:
    spec = pair.spec(method)
    model = load_target(spec.target, "cpu")
    drafter = load_network(model, spec.drafter) if spec.drafter else None
    asked = Request(find(method), chat_prompt(model, spec.prompt), {}, spec.sampling, spec.budget)
    here = collect(run(model, drafter, asked))
    there = wait(jobs, jobs.submit(spec))
    assert (there.state, there.failure, there.spec) == ("done", None, spec)
    assert there.trace
    assert ids(there.trace) == ids(here)
    assert (there.trace.header.method, there.trace.header.knobs) == (here.header.method, here.header.knobs)
    assert there.trace.end
    assert there.trace.end.reason == "length"


def test_runs_wait_in_line_and_know_their_place(jobs: Jobs, pair: Pair) -> None:
    with frozen(jobs, pair):
        made = jobs.submit_all([pair.spec() for _ in range(4)])
        wait(jobs, made[0], lambda now: now.state == "loading")
        assert states(jobs, made) == [("loading", 0), ("queued", 1), ("queued", 2), ("queued", 3)]
        jobs.cancel(made[1])
        assert states(jobs, made) == [("loading", 0), ("cancelled", 0), ("queued", 1), ("queued", 2)]
    assert wait(jobs, made[2]).state == "done"
    assert jobs.snapshot(made[0]).state == "done", "the line keeps its order"
    assert wait(jobs, made[3]).state == "done"
    assert jobs.snapshot(made[1]).trace is None


def test_a_run_that_is_getting_ready_is_over_at_once_when_cancelled(jobs: Jobs, pair: Pair) -> None:
    with frozen(jobs, pair):
        first, second = jobs.submit_all([pair.spec(), pair.spec()])
        wait(jobs, first, lambda now: now.state == "loading")
        jobs.cancel(first)
        assert jobs.snapshot(first).state == "cancelled"
    assert wait(jobs, second).state == "done"
    assert jobs.snapshot(first).trace is None


def test_a_cancelled_run_ends_before_its_next_step_and_keeps_its_trace(jobs: Jobs, pair: Pair) -> None:
    made = jobs.submit(pair.spec("eagle2", budget=400))
    wait(jobs, made, under_way)
    jobs.cancel(made)
    now = wait(jobs, made)
    assert now.state == "cancelled"
    assert now.trace
    assert now.trace.end
    assert (now.trace.end.reason, now.trace.end.steps) == ("cancelled", len(now.trace.steps))
    assert 1 <= len(ids(now.trace)) < 200
    jobs.cancel(made)  # once more does no harm
    assert jobs.snapshot(made) == now


def test_cancellation_is_asked_for_before_every_step(pair: Pair) -> None:
    """The warm-up's steps count too: it is over at the first step that finds the run called off."""
    for allowed in (0, 3, worker.WARM_UP + 4):
        asked = itertools.count()
        lines = worker.answer(pair.spec(budget=50), lambda asked=asked, allowed=allowed: next(asked) >= allowed)
        parts = [decode_answer(line) for line in lines]
        done = max(0, allowed - worker.WARM_UP - 1)  # the warm-up's end is asked for as well
        assert isinstance(parts[0], Header)
        assert isinstance(parts[-1], End)
        assert (parts[-1].reason, parts[-1].steps) == ("cancelled", done)


def test_asking_for_nothing_leaves_the_queue_as_it_is(jobs: Jobs, pair: Pair) -> None:
    assert jobs.submit_all([], owner="nobody") == []
    assert wait(jobs, jobs.submit(pair.spec(), owner="somebody")).state == "done"


def test_a_full_queue_takes_all_or_nothing(jobs: Jobs, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "limits", Limits(waiting=2))
    with frozen(jobs, pair):
        first = jobs.submit(pair.spec())
        wait(jobs, first, lambda now: now.state == "loading")
        made = [jobs.submit(pair.spec())]
        with pytest.raises(Full, match="1 runs are waiting and the queue holds 2"):
            jobs.submit_all([pair.spec(), pair.spec()])
        made.append(jobs.submit(pair.spec()))
        with pytest.raises(Full):
            jobs.submit(pair.spec())
        jobs.cancel(made[0])
        made.append(jobs.submit(pair.spec()))
    assert [wait(jobs, id).state for id in made] == ["cancelled", "done", "done"]


def test_what_nobody_asks_for_is_given_up(jobs: Jobs, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the queue itself, whether or not anybody else comes."""
    with frozen(jobs, pair):
        made = jobs.submit_all([pair.spec(budget=400), pair.spec()])
        wait(jobs, made[0], lambda now: now.state == "loading")
        monkeypatch.setattr(jobs, "limits", Limits(patience=0.2))
        until(lambda: jobs.jobs[made[1]].over)
        monkeypatch.setattr(jobs, "limits", Limits())
    assert wait(jobs, jobs.submit(pair.spec())).state == "done"
    assert states(jobs, made) == [("cancelled", 0), ("cancelled", 0)]


def test_a_run_takes_no_longer_than_it_may_and_keeps_what_it_has(
    jobs: Jobs, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = jobs.submit(pair.spec("eagle2", budget=400))
    wait(jobs, made, under_way)
    monkeypatch.setattr(jobs, "limits", Limits(seconds=0.1))
    now = wait(jobs, made)
    assert (now.state, now.failure) == ("cancelled", Failure("late", {"seconds": 0}))
    assert now.trace
    assert now.trace.end
    assert now.trace.end.reason == "cancelled"
    assert 1 <= len(ids(now.trace)) < 400


def test_a_worker_that_does_not_listen_is_made_to_go(jobs: Jobs, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Halted while it decodes, it can neither be cancelled nor be waited for."""
    made, after = jobs.submit_all([pair.spec("eagle2", budget=400), pair.spec()])
    wait(jobs, made, under_way)
    before = process_of(jobs)
    os.kill(before.pid, signal.SIGSTOP)
    monkeypatch.setattr(jobs, "limits", Limits(grace=0.2))
    jobs.cancel(made)
    now = wait(jobs, made)
    assert (now.state, now.failure) == ("cancelled", None)
    assert now.trace
    assert now.trace.steps
    assert wait(jobs, after).state == "done"
    assert process_of(jobs) is not before


def test_an_idle_worker_is_sent_home_and_called_back(jobs: Jobs, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "limits", Limits(rest=0.1))
    wait(jobs, jobs.submit(pair.spec(budget=1)))
    until(lambda: jobs.worker is None)
    assert wait(jobs, jobs.submit(pair.spec(budget=1))).state == "done"


def order(jobs: Jobs, made: list[str]) -> list[int]:
    """Places in `made` in the order they will be served."""
    line = [job.id for job in jobs.line()]
    return [made.index(id) for id in line]


def test_nobodys_second_run_comes_before_anothers_first(jobs: Jobs, pair: Pair) -> None:
    with frozen(jobs, pair):
        race = jobs.submit_all([pair.spec() for _ in range(4)], "ann")
        wait(jobs, race[0], lambda now: now.state == "loading")
        late = jobs.submit_all([pair.spec(), pair.spec()], "ben")
        assert order(jobs, race + late) == [4, 1, 5, 2, 3]
        assert [jobs.snapshot(id).position for id in late] == [1, 3]
        for id in race + late:
            jobs.cancel(id)


def test_who_comes_again_and_again_keeps_nobody_waiting() -> None:
    turns = Turns()
    waiting = [turns.take("ann"), turns.take("ann"), turns.take("ann")]
    turns.serve(waiting.pop(0))
    served = 0
    for _ in range(5):
        mine = turns.take("ben")
        while waiting and waiting[0] <= mine:
            turns.serve(waiting.pop(0))
            served += 1
        turns.serve(mine)
    assert served == 2


def test_a_wait_is_what_the_last_runs_took() -> None:
    paces = Paces()
    assert paces.seconds("plain", 64) is None
    paces.hear("plain", 10, 20.0)
    assert paces.seconds("plain", 64) == 128.0
    paces.hear("plain", 10, 10.0)
    assert paces.seconds("plain", 10) == 15.0
    assert paces.seconds("never seen", 10) == 15.0


def test_the_wait_grows_with_the_line(jobs: Jobs, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with frozen(jobs, pair):
        paces = Paces({"plain": 2.0})
        monkeypatch.setattr(jobs, "paces", paces)
        made = jobs.submit_all([pair.spec(budget=5) for _ in range(3)])
        wait(jobs, made[0], lambda now: now.state == "loading")
        first, second, third = (jobs.snapshot(id).wait for id in made)
        assert (first, third) == (0.0, pytest.approx(20, abs=2))
        assert second == pytest.approx(10, abs=2)
        for id in made:
            jobs.cancel(id)


def test_one_reader_may_not_take_the_whole_line(jobs: Jobs, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with frozen(jobs, pair):
        monkeypatch.setattr(jobs, "limits", Limits(own=2, often=4))
        first = jobs.submit(pair.spec(), "cleo")
        wait(jobs, first, lambda now: now.state == "loading")
        made = jobs.submit_all([pair.spec(), pair.spec()], "cleo")
        with pytest.raises(Full) as own:
            jobs.submit(pair.spec(), "cleo")
        other = jobs.submit(pair.spec(), "dan")
        jobs.cancel(made[0])
        jobs.submit(pair.spec(), "cleo")
        jobs.cancel(made[1])
        with pytest.raises(Full) as rate:
            jobs.submit(pair.spec(), "cleo")
    assert (own.value.kind, own.value.values) == ("own", {"most": 2})
    assert (rate.value.kind, rate.value.values["most"]) == ("rate", 4)
    assert 590 < float(rate.value.values["wait"]) <= 600
    assert wait(jobs, other).state == "done"


def test_a_budget_beyond_the_limit_is_refused(jobs: Jobs, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "limits", Limits(tokens=5))
    with pytest.raises(Full) as refused:
        jobs.submit_all([pair.spec(budget=5), pair.spec(budget=6)])
    assert (refused.value.kind, refused.value.values) == ("budget", {"most": 5})


def test_what_somebody_asks_for_goes_on(jobs: Jobs, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "limits", Limits(patience=1.0))
    with frozen(jobs, pair):
        made = jobs.submit(pair.spec())
        for _ in range(15):
            jobs.snapshot(made)
            time.sleep(0.1)
    assert wait(jobs, made).state == "done"


def test_a_dead_worker_is_reported_and_replaced(jobs: Jobs, pair: Pair) -> None:
    made, after = jobs.submit_all([pair.spec("eagle2", budget=400), pair.spec()])
    wait(jobs, made, under_way)
    before = process_of(jobs)
    before.kill()
    now = wait(jobs, made)
    assert (now.state, now.failure) == ("failed", Failure("died", {"reason": "signal 9"}))
    assert now.trace
    assert now.trace.steps
    assert wait(jobs, after).state == "done"
    assert process_of(jobs) is not before


def test_readers_may_submit_at_the_same_time(jobs: Jobs, pair: Pair) -> None:
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(jobs.submit, [pair.spec(prompt=f"Number {i}", budget=3) for i in range(6)]))
    ends = [wait(jobs, id) for id in made]
    assert [end.state for end in ends] == ["done"] * 6
    assert [end.trace.header.prompt.text for end in ends if end.trace] == [f"Number {i}" for i in range(6)]
    assert len({end.trace.header.id for end in ends if end.trace}) == 6


def test_a_finished_run_is_kept_small_and_whole(jobs: Jobs, pair: Pair) -> None:
    made = wait(jobs, jobs.submit(pair.spec("eagle2", budget=40)))
    until(lambda: bool(jobs.jobs[made.id].packed))
    assert jobs.jobs[made.id].trace is None
    assert made.trace
    again = jobs.snapshot(made.id).trace
    assert again == made.trace
    assert again is not made.trace
    assert len(jobs.jobs[made.id].packed) < sum(map(len, map(encode, made.trace.steps))) / 2


def test_what_ended_long_ago_is_forgotten(jobs: Jobs, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (wait(jobs, jobs.submit(pair.spec(budget=1))).id for _ in range(2))
    monkeypatch.setattr(jobs, "limits", Limits(kept=1))
    wait(jobs, jobs.submit(pair.spec(budget=1)))
    assert jobs.snapshot(second).state == "done"
    for ask in (jobs.snapshot, jobs.cancel):
        with pytest.raises(Gone, match="not here any more"):
            ask(first)


def test_a_closed_queue_gives_up_its_runs_and_its_worker(pair: Pair) -> None:
    jobs = Jobs()
    made = jobs.submit_all([pair.spec(budget=400), pair.spec()])
    wait(jobs, made[0], lambda now: jobs.worker is not None)
    jobs.close()
    assert [jobs.snapshot(id).state for id in made] == ["cancelled", "cancelled"]
    assert not any(hand.thread.is_alive() for hand in jobs.hands if hand.thread)
    with pytest.raises(Full, match="closed"):
        jobs.submit(pair.spec())


def test_a_queue_that_closes_in_peace_finishes_what_is_in_hand(pair: Pair) -> None:
    over: list[tuple[str, str]] = []
    jobs = Jobs(Limits(patience=600), heard=lambda job: over.append((job.id, job.state)))
    first, second = jobs.submit_all([pair.spec(budget=100), pair.spec()])
    wait(jobs, first, lambda now: now.state == "running")
    jobs.close(patience=PATIENCE)
    assert jobs.snapshot(first).state == "done"
    assert (jobs.snapshot(second).state, jobs.snapshot(second).failure) == ("cancelled", Failure("closing", {}))
    assert sorted(over) == sorted([(first, "done"), (second, "cancelled")]), "each once"


def test_a_run_can_be_asked_for_again(jobs: Jobs, pair: Pair) -> None:
    first = wait(jobs, jobs.submit(pair.spec()))
    (again,) = jobs.again([first.id])
    second = wait(jobs, again)
    assert second.spec == first.spec
    assert first.trace
    assert second.trace
    assert ids(second.trace) == ids(first.trace)
    with pytest.raises(Gone):
        jobs.again(["no such run"])


def test_a_worker_without_an_app_ends_itself() -> None:
    """All it is told is what a parent that dies, however suddenly, leaves behind: an input that is over."""
    assert Process().stop() == "exit status 0"


# What a worker answers


def answers(spec: Spec) -> Failure:
    *_, last = map(decode_answer, worker.answer(spec, lambda: False))
    assert isinstance(last, Failure)
    return last


def test_what_cannot_run_says_why(jobs: Jobs, pair: Pair) -> None:
    long = wait(jobs, jobs.submit(pair.spec(prompt="long " * 200)))
    assert long.state == "failed"
    assert long.failure
    assert (long.failure.kind, long.failure.values["limit"], long.failure.everywhere) == ("long", 512, True)
    nowhere = answers(msgspec.structs.replace(pair.spec(), target="/no/such/folder"))
    assert (nowhere.kind, nowhere.everywhere) == ("load", True)
    assert "/no/such/folder" in str(nowhere.values["message"])
    undrafted = answers(msgspec.structs.replace(pair.spec("dflash"), drafter=""))
    assert (undrafted.kind, undrafted.everywhere) == ("weights", False)
    assert "needs dflash weights" in str(undrafted.values["message"])


def test_a_prompt_longer_than_this_server_takes_is_refused(pair: Pair) -> None:
    found = answers(msgspec.structs.replace(pair.spec(prompt="Hello"), longest=20))
    assert (found.kind, found.values["limit"], found.everywhere) == ("prompt", 20, True)
    assert int(found.values["tokens"]) > 20
    longer = msgspec.structs.replace(pair.spec(prompt="Hello"), longest=int(found.values["tokens"]))
    assert isinstance([*map(decode_answer, worker.answer(longer, lambda: False))][-1], End)


@pytest.mark.parametrize(
    "text", ["\x00\x07\x1b[2J", "\u202eright to left", "\ufeff\ufffe", "a\x00b" * 40, "<script>alert(1)</script>"]
)
def test_any_character_is_a_prompt(pair: Pair, text: str) -> None:
    head, *_, end = [decode_answer(line) for line in worker.answer(pair.spec(prompt=text), lambda: False)]
    assert isinstance(head, Header)
    assert head.prompt.text == text
    assert isinstance(end, End)


def test_running_out_of_memory_is_told_and_the_memory_freed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(worker, "live", burst)
        worker.target(pair.target, "cpu")
        assert answers(pair.spec()) == Failure("exhausted", {})
    assert worker.target.cache_info().currsize == 0
    assert [decode_answer(line) for line in worker.answer(pair.spec(), lambda: False)], "and the next run goes well"


def test_a_missing_package_is_named(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.target.cache_clear()
    monkeypatch.setitem(sys.modules, "models.load", None)
    assert answers(pair.spec()) == Failure("module", {"name": "models.load"}, everywhere=True)


def headers(spec: Spec) -> list[Header]:
    parts = map(decode_answer, worker.answer(spec, lambda: False))
    return [part for part in parts if isinstance(part, Header)]


def test_other_work_on_the_processor_is_confessed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**6, 1000))
    monkeypatch.setattr(contention, "foreign_seconds", lambda: float(next(clock)))
    first, corrected = headers(pair.spec())
    assert corrected == msgspec.structs.replace(first, contended=True)


def test_a_quiet_processor_is_not_accused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "foreign_seconds", lambda: 0.0)
    assert [head.contended for head in headers(pair.spec())] == [False]


def test_no_line_of_a_trace_looks_like_a_failure(pair: Pair) -> None:
    assert not any(line.startswith(FAILED) for line in worker.answer(pair.spec(), lambda: False))


def test_the_queue_needs_no_torch() -> None:
    code = "import sys, spec_core.jobs; print(*{'torch', 'streamlit', 'transformers'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
