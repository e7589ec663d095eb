"""The cluster's side of spec_core.cluster: the replicas of one Ray Serve deployment, and the client that reaches them.

RAY_ADDRESS: a cluster to join; without it one is started on this machine. Every machine of a cluster needs this project
at the same path, with the same packages.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, BinaryIO, Literal

import msgspec

from spec_core.cluster import READY, Drop, Ping, places
from spec_core.job import Ask, Cancel, Failure
from spec_core.process import ROOT
from spec_core.worker import answer, failed

Call = Literal["cancel", "end"]
NAME = "draftscope"
PATIENCE = 60.0  # seconds until a replica that waits for calls asks again
MOMENT = 2.0  # seconds that a step may still take when its run is to end
PARTING = 8.0  # seconds to leave a cluster
PING = 10.0  # seconds a cluster may take to answer
JOIN, START = 40.0, 180.0  # seconds until a cluster is given up, and until its replicas are: Ray would wait for ever
OURS = ("DRAFTSCOPE_", "OMP_", "GOMP_", "HF_")  # settings that the replicas share with this process


class Board:
    """An actor beside the replicas: calls about runs in hand, which Serve would hold back until those are over."""

    def __init__(self) -> None:
        self.count, self.calls, self.changed = 0, deque[tuple[Call, str]](maxlen=1000), asyncio.Condition()

    async def put(self, call: Call, id: str) -> None:
        async with self.changed:
            self.count += 1
            self.calls.append((call, id))
            self.changed.notify_all()

    async def ping(self) -> None:
        """Here."""

    async def after(self, count: int) -> tuple[int, list[tuple[Call, str]]]:
        """How many calls there were, and those since the first `count`, once there are any."""
        async with self.changed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait_for(lambda: self.count != count), PATIENCE)
            new = self.count - count if self.count >= count else self.count  # it may have been started anew
            return self.count, list(self.calls)[max(0, len(self.calls) - new) :] if new else []


class Replica:
    """Decodes a run at a time on a thread of its own, and hears calls on another."""

    def __init__(self, board: Any) -> None:
        self.board = board
        self.thread = ThreadPoolExecutor(1)  # always the same one: torch keeps its modes by thread
        self.off: deque[str] = deque(maxlen=1000)  # every replica is told, and it may be told before the run comes
        self.doing = ""
        threading.Thread(target=self.listen, daemon=True).start()

    async def decode(self, asked: bytes) -> AsyncIterator[bytes]:
        """The lines that a worker process would answer."""
        ask, loop = msgspec.json.decode(asked, type=Ask), asyncio.get_running_loop()
        self.doing = ask.id
        lines = answer(ask.spec, partial(self.off.__contains__, ask.id))
        try:
            while line := await loop.run_in_executor(self.thread, next, lines, b""):
                yield line
        finally:  # also where the asker is gone
            self.off.append(ask.id)

    def listen(self) -> None:
        import ray
        from ray.exceptions import RayError

        seen = 0
        while True:
            try:
                seen, calls = ray.get(self.board.after.remote(seen))
                for call, id in calls:
                    self.hear(call, id)
            except RayError:  # the board is being started anew
                time.sleep(1)

    def hear(self, call: Call, id: str) -> None:
        """A run that does not listen takes its replica along: Serve starts another in its place."""
        if call == "cancel":
            self.off.append(id)
        elif self.doing == id and not self.idle():
            os._exit(1)

    def idle(self) -> bool:
        """The run in hand has been left, at the latest in a moment."""
        try:
            self.thread.submit(bool).result(MOMENT)
        except TimeoutError:
            return False
        return True


def settings() -> dict[str, str]:
    """The environment of a replica."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return {k: v for k, v in os.environ.items() if k.startswith(OURS)} | {"PYTHONPATH": paths}


def join() -> None:
    """Be part of the cluster that RAY_ADDRESS names, or of a new one on this machine. Nothing is sent elsewhere."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"include_dashboard": False}
    ray.init(logging_level=logging.WARNING, log_to_driver=False, namespace=NAME, **own)


def deploy() -> tuple[Any, Any]:
    """The handle of our replicas, which are started, and their board. One that is there already is taken over."""
    import ray
    from ray import serve

    serve.start(proxy_location="Disabled")  # nobody but us is to reach the replicas
    gpu = 1 if ray.cluster_resources().get("GPU") else 0
    made = serve.deployment(
        Replica,  # type: ignore[arg-type]
        name=NAME,
        num_replicas=places(),
        ray_actor_options={"num_cpus": 1, "num_gpus": gpu, "runtime_env": {"env_vars": settings()}},
        max_ongoing_requests=1,
        max_queued_requests=places(),
        health_check_period_s=3,
        health_check_timeout_s=10,  # one that stands still is replaced
        graceful_shutdown_timeout_s=5,
    )
    kept = {"name": "board", "namespace": NAME, "get_if_exists": True, "max_restarts": -1}
    board = ray.remote(Board).options(num_cpus=0, **kept).remote()
    return serve.run(made.bind(board), name=NAME, route_prefix=None), board


class Client:
    """Passes runs to the replicas, each on a thread, and their lines back under the runs' ids."""

    def __init__(self, out: BinaryIO):
        self.out, self.lock = out, threading.Lock()
        with self.within(JOIN, f"nothing answers at {os.environ.get('RAY_ADDRESS', 'this machine')}"):
            join()
        with self.within(START, f"it has no room for {places()} replicas, or they do not start"):
            self.handle, self.board = deploy()
        self.streams: dict[str, Any] = {}

    def say(self, line: bytes, id: str = "") -> None:
        with self.lock:
            self.out.write(f"{id} ".encode() * bool(id) + line)
            self.out.flush()

    @contextmanager
    def within(self, seconds: float, why: str) -> Iterator[None]:
        timer = threading.Timer(seconds, self.give_up, [f"{why} (waited {seconds:.0f} s)"])
        timer.start()
        try:
            yield
        except Exception as error:  # of many kinds: Ray's, its network's, its processes'
            self.give_up(" ".join(str(error).split()))
        timer.cancel()

    def give_up(self, why: str) -> None:
        self.say(why.encode() + b"\n")
        os._exit(1)

    def hear(self, message: Ask | Cancel | Drop | Ping) -> None:
        if isinstance(message, Ask):
            threading.Thread(target=self.pass_on, args=(message,), daemon=True).start()
        elif isinstance(message, Ping):
            threading.Thread(target=self.look, args=(message,), daemon=True).start()
        elif isinstance(message, Cancel):
            self.board.put.remote("cancel", message.id)
        else:
            self.drop(message)

    def pass_on(self, ask: Ask) -> None:
        """What the replica says; where it breaks off, why, as the last line of the run."""
        from ray.serve.exceptions import BackPressureError

        try:
            self.streams[ask.id] = stream = self.handle.options(stream=True).decode.remote(msgspec.json.encode(ask))
            for line in stream:
                self.say(line, ask.id)
        except BackPressureError:  # other servers keep this cluster busy
            self.say(failed(Failure("busy", {})), ask.id)
        except Exception as error:  # a replica's end, the cluster's, the network's
            self.say(failed(Failure("died", {"reason": type(error).__name__})), ask.id)
        self.streams.pop(ask.id, None)

    def drop(self, message: Drop) -> None:
        if message.end:
            self.board.put.remote("end", message.id)
        if stream := self.streams.get(message.id):
            with suppress(Exception):  # it may be over, or its replica gone
                stream.cancel()

    def look(self, ping: Ping) -> None:
        """Say that all is well, or go: whoever needs the cluster next starts a new client."""
        import ray
        from ray import serve

        try:
            ray.get(self.board.ping.remote(), timeout=PING)
            serve.get_app_handle(NAME)
        except Exception:
            os._exit(1)
        self.say(READY + b"\n", ping.id)


def main() -> None:
    import ray

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the app, which then closes our input
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints goes to the log, not between our lines
    client = Client(out)
    client.say(READY + b"\n")
    for line in sys.stdin.buffer:
        client.hear(msgspec.json.decode(line, type=Ask | Cancel | Drop | Ping))
    threading.Timer(PARTING, os._exit, [0]).start()
    ray.shutdown()  # the app is gone; so is a cluster that was started here
    os._exit(0)


if __name__ == "__main__":
    from spec_core import replicas

    replicas.main()  # what is sent to the cluster has to be found there under its name
