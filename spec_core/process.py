"""What decodes for a queue, and the usual one: a process of its own, spoken to in lines.

It is no child of multiprocessing: that would run the caller's main script again, which in the app is the app.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from spec_core.job import Ask, Cancel

ROOT = Path(__file__).parents[1]


class Worker(Protocol):
    """What decodes: told what to do, it answers in lines."""

    def tell(self, message: Ask | Cancel) -> None: ...

    def answers(self) -> Iterator[bytes]:
        """Its lines, until it ends. One that broke off is no line."""
        ...

    def kill(self) -> None:
        """End it at once, whatever it does; its answers end with it."""
        ...

    def stop(self) -> str:
        """End it, if it has not ended by itself, and say how it ended."""
        ...


class Process:
    """A worker on this machine. module: what it runs."""

    def __init__(self, module: str = "spec_core.worker") -> None:
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths},
        )
        self.lock = threading.Lock()

    def tell(self, message: msgspec.Struct) -> None:
        """One that is gone does not listen: whoever reads its answers will notice."""
        assert self.process.stdin
        with self.lock, suppress(OSError, ValueError):
            self.process.stdin.write(msgspec.json.encode(message) + b"\n")
            self.process.stdin.flush()

    def answers(self) -> Iterator[bytes]:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                yield line

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> str:
        assert self.process.stdin
        assert self.process.stdout
        with self.lock, suppress(OSError):
            self.process.stdin.close()  # which it takes as the order to go
        try:
            status = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process.stdout.close()
        return f"signal {-status}" if status < 0 else f"exit status {status}"
