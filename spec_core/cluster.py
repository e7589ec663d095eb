"""Workers past one machine: the replicas of one Ray Serve deployment, each with models of its own.

The queue stays the one of spec_core.jobs; what it hires here is a place in the cluster instead of a process.
DRAFTSCOPE_REPLICAS: how many there are, such as one for each GPU. RAY_ADDRESS: a cluster to join; without it one is
started on this machine. Every machine of a cluster needs this project at the same path, with the same packages.
"""

import asyncio
import functools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import msgspec

from spec_core.job import Ask, Cancel, Failure
from spec_core.process import ROOT
from spec_core.worker import answer, failed

Call = Literal["cancel", "end"]
NAME = "draftscope"
LOCK = threading.Lock()
PATIENCE = 60.0  # seconds until a replica that waits for calls asks again
MOMENT = 2.0  # seconds that a step may still take when its run is to end
PING = 10.0  # seconds a cluster may take to answer
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


class Remote:
    """A place in the cluster: whichever replica is free takes the run."""

    def __init__(self, handle: Any, board: Any):
        self.handle, self.board = handle, board
        self.stream: Any = None
        self.asked, self.order, self.reason = "", b"", ""

    def tell(self, message: Ask | Cancel) -> None:
        if isinstance(message, Cancel):
            self.call("cancel", message.id)
            return
        self.asked, self.order = message.id, msgspec.json.encode(message)

    def answers(self) -> Iterator[bytes]:
        from ray.serve.exceptions import BackPressureError

        try:
            self.stream = self.handle.options(stream=True).decode.remote(self.order)
            yield from self.stream
        except BackPressureError:  # other servers keep this cluster busy
            yield failed(Failure("busy", {}))
        except (
            Exception
        ) as error:  # a replica's end, the cluster's, the network's: all end this worker, and none the queue
            self.reason = type(error).__name__

    def kill(self) -> None:
        self.call("end", self.asked)
        self.leave()  # the replica may not be the only one that does not listen

    def leave(self) -> None:
        with suppress(Exception):  # there may be no stream, it may be over, or its replica gone
            self.stream.cancel()

    def call(self, call: Call, id: str) -> None:
        with suppress(Exception):  # where the cluster is gone, so is the run
            self.board.put.remote(call, id)

    def stop(self) -> str:
        self.leave()
        return self.reason or "the end of its answers"


def settings() -> dict[str, str]:
    """The environment of a replica."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return {k: v for k, v in os.environ.items() if k.startswith(OURS)} | {"PYTHONPATH": paths}


def join() -> None:
    """Be part of the cluster that RAY_ADDRESS names, or of a new one on this machine. Nothing is sent elsewhere."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if ray.is_initialized():
        return
    own: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"include_dashboard": False}
    ray.init(logging_level=logging.WARNING, log_to_driver=False, namespace=NAME, **own)


def replicas() -> int:
    """How many runs go on at once."""
    said = os.environ.get("DRAFTSCOPE_REPLICAS", "")
    return max(1, int(said)) if said.isdecimal() else 1


@functools.cache
def deployment() -> tuple[Any, Any]:
    """The handle of our replicas, which are started, and their board. One that is there already is taken over."""
    import ray
    from ray import serve

    join()
    serve.start(proxy_location="Disabled")  # nobody but us is to reach the replicas
    gpu = 1 if ray.cluster_resources().get("GPU") else 0
    made = serve.deployment(
        Replica,  # type: ignore[arg-type]
        name=NAME,
        num_replicas=replicas(),
        ray_actor_options={"num_cpus": 1, "num_gpus": gpu, "runtime_env": {"env_vars": settings()}},
        max_ongoing_requests=1,
        max_queued_requests=replicas(),
        health_check_period_s=3,
        health_check_timeout_s=10,  # one that stands still is replaced
        graceful_shutdown_timeout_s=5,
    )
    kept = {"name": "board", "namespace": NAME, "get_if_exists": True, "max_restarts": -1}
    board = ray.remote(Board).options(num_cpus=0, **kept).remote()
    return serve.run(made.bind(board), name=NAME, route_prefix=None), board


def hire() -> Remote:
    """A place in our cluster, which the first one starts; OSError where there is none to be had."""
    with LOCK:
        try:
            return Remote(*(deployment() if alive() else anew()))
        except Exception as error:  # of many kinds: Ray's, its network's, its processes'
            raise OSError(f"no cluster: {error}") from error


def alive() -> bool:
    """The cluster answers and has our replicas, or there was none yet."""
    import ray
    from ray import serve

    try:
        if deployment.cache_info().currsize:
            ray.get(deployment()[1].ping.remote(), timeout=PING)
            serve.get_app_handle(NAME)
        return True
    except Exception:
        return False


def anew() -> tuple[Any, Any]:
    """Leave a cluster that does not answer, and join it again or start another."""
    import ray

    deployment.cache_clear()
    ray.shutdown()
    return deployment()
