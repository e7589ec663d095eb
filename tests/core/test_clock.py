"""A step's passes: nothing is counted twice, nothing is lost, and no device is waited for on the way."""

import torch

from spec_core.contract import Clock, Stopwatch, aside
from spec_core.stopwatch import EventWatch, stopwatch


class Queue(Stopwatch):
    """A device whose marks are known only once it was waited for. `now` moves by hand."""

    def __init__(self) -> None:
        self.now, self.waits = 0.0, 0
        self.known = self.made = 0

    def mark(self) -> tuple[int, float]:
        self.made += 1
        return self.made, self.now

    def ms(self, begin: tuple[int, float], end: tuple[int, float]) -> float:
        assert max(begin[0], end[0]) <= self.known, "read before it was waited for"
        return end[1] - begin[1]

    def settle(self) -> None:
        self.waits, self.known = self.waits + 1, self.made


def test_a_step_adds_up_and_is_waited_for_at_its_ends_alone() -> None:
    watch = Queue()
    clock = Clock(watch)
    clock.start()
    before = watch.waits
    for kind, host, ms in (("draft", 0.0, 2.0), ("head", 1.0, 3.0), ("target", 0.5, 10.0)):
        watch.now += host
        with clock.measure(kind, 4, 1):  # type: ignore[arg-type]
            watch.now += ms
    watch.now += 0.25
    clock.fill()
    assert watch.waits == before
    passes = clock.passes
    assert watch.waits == before + 1
    assert [(one.kind, one.ms) for one in passes] == [
        ("draft", 2.0),
        ("host", 1.0),
        ("head", 3.0),
        ("host", 0.5),
        ("target", 10.0),
        ("host", 0.25),
    ]
    ends = [one.start_ms + one.ms for one in passes]
    assert [one.start_ms for one in passes] == [0.0, *ends[:-1]]
    assert ends[-1] == watch.now


def test_what_is_set_aside_within_a_pass_is_no_part_of_it() -> None:
    watch = Queue()
    clock = Clock(watch)
    with clock.measure("draft", 4, 1):
        watch.now += 2
        with aside():
            watch.now += 50
        watch.now += 1
    with clock.measure("target"):
        watch.now += 10
    assert [(one.kind, one.ms) for one in clock.passes] == [("draft", 3.0), ("record", 50.0), ("target", 10.0)]
    assert sum(one.ms for one in clock.passes) == watch.now
    clock.start()
    with aside():  # nobody times a pass
        watch.now += 5
    assert not clock.laps


def test_a_new_step_begins_with_nothing() -> None:
    watch = Queue()
    clock = Clock(watch)
    with clock.measure("draft"):
        watch.now += 1
    watch.now += 5
    clock.start()
    with clock.measure("target"):
        watch.now += 2
    assert [(one.kind, one.start_ms, one.ms) for one in clock.passes] == [("target", 0.0, 2.0)]


def test_the_host_times_itself_and_a_gpu_has_events() -> None:
    assert type(stopwatch(torch.device("cpu"))) is Stopwatch
    assert isinstance(stopwatch(torch.device("cuda")), EventWatch)
