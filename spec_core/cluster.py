"""Workers past one machine: places in a Ray cluster, hired like processes. Ray itself stays outside the app.

One process of its own, spec_core.replicas, is the cluster's client for the whole app, and every run goes through it in
lines: Ray ends a client that has lost its cluster, and the app is to survive that.
DRAFTSCOPE_REPLICAS: how many runs the cluster takes at once, such as one for each GPU.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue

import msgspec

from spec_core.job import Ask, Cancel
from spec_core.process import Process

READY = b"ready"
LOCK = threading.Lock()
PATIENCE = 30.0  # seconds the client may take to say that its cluster answers


class Ping(msgspec.Struct, frozen=True, tag=True):
    """To the client: does the cluster answer, and has it our replicas? What it says comes back under this id."""

    id: str


class Drop(msgspec.Struct, frozen=True, tag=True):
    """To the client: nobody wants that run any more. end: nor the replica that does not leave it."""

    id: str
    end: bool = False


Box = SimpleQueue[bytes | None]


class Gateway:
    """The cluster's client: takes what all places say, and hands each the lines of its run."""

    def __init__(self) -> None:
        self.process = Process("spec_core.replicas")
        self.boxes: dict[str, Box] = {}
        self.lock = threading.Lock()
        self.gone = False
        answers = self.process.answers()
        first = next(answers, b"").rstrip()
        if first != READY:
            ended = self.process.stop()
            raise OSError(f"no cluster: {first.decode() or ended}")
        threading.Thread(target=self.sort, args=(answers,), name="cluster", daemon=True).start()

    def sort(self, answers: Iterator[bytes]) -> None:
        with suppress(ValueError):  # it is being ended
            for answer in answers:
                id, _, line = answer.partition(b" ")
                if box := self.boxes.get(id.decode()):
                    box.put(line)
        with self.lock:
            self.gone = True
            for box in self.boxes.values():
                box.put(None)

    def open(self, id: str) -> Box:
        """Where the lines under this id come from now on, and None if there are no more."""
        with self.lock:
            box = self.boxes[id] = SimpleQueue()
            if self.gone:
                box.put(None)
            return box

    def close(self, id: str) -> None:
        with self.lock:
            self.boxes.pop(id, None)

    def well(self) -> bool:
        """The client is there, and its cluster answers and has our replicas."""
        box = self.open("ping")
        self.process.tell(Ping("ping"))
        try:
            return box.get(timeout=PATIENCE) is not None
        except Empty:
            return False


GATEWAYS: list[Gateway] = []  # the one in use


def gateway() -> Gateway:
    """The one in use if all is well behind it, else a new one; OSError where no cluster is to be had."""
    with LOCK:
        if not (GATEWAYS and GATEWAYS[0].well()):
            leave()
            GATEWAYS.append(Gateway())
        return GATEWAYS[0]


def leave() -> None:
    """End the client, and with it a cluster that it started itself."""
    while GATEWAYS:
        GATEWAYS.pop().process.stop()


class Place:
    """A place in the cluster: whichever replica is free takes the run."""

    def __init__(self) -> None:
        self.gateway, self.box, self.asked = gateway(), Box(), ""  # OSError at once where there is no cluster

    def tell(self, message: Ask | Cancel) -> None:
        if isinstance(message, Ask):
            self.gateway.close(self.asked)
            self.gateway, self.asked = gateway(), message.id
            self.box = self.gateway.open(message.id)
        self.gateway.process.tell(message)

    def answers(self) -> Iterator[bytes]:
        while line := self.box.get():
            yield line

    def kill(self) -> None:
        self.gateway.process.tell(Drop(self.asked, end=True))
        self.box.put(None)

    def stop(self) -> str:
        self.gateway.process.tell(Drop(self.asked))
        self.gateway.close(self.asked)
        self.box.put(None)
        return "the cluster was lost"


def places() -> int:
    """How many runs go on at once."""
    said = os.environ.get("DRAFTSCOPE_REPLICAS", "")
    return max(1, int(said)) if said.isdecimal() else 1
