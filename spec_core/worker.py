"""The process behind a queue: reads orders as lines, keeps the models it has loaded, answers with a run's trace lines.

spec_core.jobs starts it. It ends when nobody is left at the other end of its standard input.
"""

import functools
import gc
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from spec_core import measurement
from spec_core.contention import Watch
from spec_core.job import FAILED, Ask, Cancel, Failure, LatencySpec, Spec
from spec_core.trace import End, Header, Refusal, Step, encode

if TYPE_CHECKING:
    from models.load import Model, Network
    from spec_core.measure import Subject
    from spec_core.run import Request

WARM_UP = 8  # tokens decoded, and thrown away, before a run is measured


class Inbox:
    """What comes in, read beside the decoding: orders wait their turn, a cancellation counts at once."""

    def __init__(self, lines: BinaryIO):
        self.lines, self.asked, self.off = lines, queue.SimpleQueue[Ask](), set[str]()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.lines:
            message = msgspec.json.decode(line, type=Ask | Cancel)
            if isinstance(message, Ask):
                self.asked.put(message)
            else:
                self.off.add(message.id)
        os._exit(0)  # the app is gone: whatever is being decoded is for nobody


@functools.lru_cache(maxsize=2)
def target(name: str, device: str) -> "Model":
    from models.load import load_target

    return load_target(name, device)


@functools.lru_cache(maxsize=6)
def network(name: str, device: str, source: str) -> "Network":
    """A drafter network for the target `name`; methods of one kind share it."""
    from models.load import load_network

    return load_network(target(name, device), source)


def answer(spec: Spec | LatencySpec, cancelled: Callable[[], bool]) -> Iterator[bytes]:
    """The lines of a trace or a measurement as they come to be; instead of what cannot be had, that of a failure."""
    everywhere, wrong = True, None
    try:
        if isinstance(spec, LatencySpec):
            yield from map(measurement.encode, timings(spec, cancelled))
            return
        request = request_of(spec, target(spec.target, spec.device))
        everywhere = False
        yield from map(encode, live(spec, request, cancelled))
    except ModuleNotFoundError as error:
        wrong = Failure("module", {"name": str(error.name)}, everywhere=True)
    except Exception as error:
        wrong = failure(error, everywhere)
        if not isinstance(error, ValueError | OSError | RuntimeError | MemoryError):  # those are meant to be read
            traceback.print_exc()
    if wrong and wrong.kind == "exhausted":  # only now: the error itself held on to what filled the memory
        free()
    if wrong:
        yield failed(wrong)


def free() -> None:
    """Give back all memory that can be had back: the next run loads its models again."""
    import torch

    network.cache_clear()
    target.cache_clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def exhausted(error: Exception) -> bool:
    """Memory ran out, on the device or in the system."""
    return type(error).__name__ in ("OutOfMemoryError", "MemoryError") or "can't allocate memory" in str(error)


def failure(error: Exception, everywhere: bool) -> Failure:
    """What went wrong, by kind where it has one, with its own words for those who do not know the kind."""
    from models.decoder import ConfigError
    from models.fetch import FetchError

    values: dict[str, str | int | float] = {"message": str(error) or type(error).__name__}
    if isinstance(error, Refusal):
        return Failure(error.kind or "run", values | error.values, everywhere)
    if isinstance(error, FetchError):
        return Failure("fetch", values, everywhere)
    if exhausted(error):
        return Failure("exhausted", {})
    return Failure("load" if isinstance(error, ConfigError) else "run", values, everywhere)


def failed(failure: Failure) -> bytes:
    return FAILED + msgspec.json.encode(failure) + b"\n"


def request_of(spec: Spec, model: "Model") -> "Request":
    from spec_core.methods import find
    from spec_core.run import Request, chat_prompt, check_length, raw_prompt

    prompt = {"chat": chat_prompt, "raw": raw_prompt}[spec.kind](model, spec.prompt)
    check_length(prompt.ids, model.decoder.config.max_positions)
    if 0 < spec.longest < len(prompt.ids):
        values: dict[str, str | int | float] = {"tokens": len(prompt.ids), "limit": spec.longest}
        raise Refusal(f"The prompt has {len(prompt.ids)} tokens and may have {spec.longest}.", "prompt", values)
    return Request(find(spec.method), prompt, spec.knobs, spec.sampling, spec.budget)


def live(spec: Spec, request: "Request", cancelled: Callable[[], bool]) -> Iterator[Header | Step | End]:
    """The run, after a few unmeasured steps to warm up.

    Before the end the header comes once more if something else kept the processor busy meanwhile.
    """
    from spec_core.run import run

    model = target(spec.target, spec.device)
    drafter = network(spec.target, spec.device, spec.drafter) if spec.drafter else None
    for _ in run(model, drafter, replace(request, budget=min(WARM_UP, request.budget)), cancelled):
        pass
    watch = Watch()
    head: Header | None = None
    for part in run(model, drafter, request, cancelled):
        head = part if isinstance(part, Header) else head
        if isinstance(part, End) and head and watch.contended():
            yield msgspec.structs.replace(head, contended=True)
        yield part


def timings(spec: LatencySpec, cancelled: Callable[[], bool]) -> Iterator[measurement.Part]:
    """A latency measurement: of a target and its own drafters, or of random weights in a published shape."""
    from spec_core.measure import Plan, measure

    return measure(subject(spec), Plan(spec.lengths, spec.contexts, spec.rounds), cancelled)


def subject(spec: LatencySpec) -> "Subject":
    from models.shapes import TooBig
    from spec_core.measure import equipped, of_shape

    if not spec.shape:
        model = target(spec.target, spec.device)
        return equipped(model, lambda _, source: network(spec.target, spec.device, source))
    try:
        return of_shape(spec.shape, spec.device)
    except TooBig as error:
        values: dict[str, str | int | float] = {"shape": error.title, "need": error.need, "have": error.have}
        raise Refusal(str(error), "memory", values) from error


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the app, which then closes our input
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints goes to the log, not between our lines
    inbox = Inbox(sys.stdin.buffer)
    while True:
        ask = inbox.asked.get()
        for line in answer(ask.spec, functools.partial(inbox.off.__contains__, ask.id)):
            out.write(line)
            out.flush()
        inbox.off.discard(ask.id)


if __name__ == "__main__":
    main()
