"""What the queue's tests share: orders for a tiny pair in folders, and waiting for a run."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spec_core.job import Snapshot, Spec
from spec_core.jobs import Jobs
from spec_core.methods import find
from spec_core.trace import Sampling
from tests.toy import toy_drafter_folders, toy_folder

PATIENCE = 180.0  # seconds: a worker imports torch first, which takes long on a busy machine


@dataclass(frozen=True)
class Pair:
    target: str
    drafters: dict[str, str]

    @classmethod
    def below(cls, root: Path) -> "Pair":
        drafters = {kind: str(path) for kind, path in toy_drafter_folders(root).items()}
        return cls(str(toy_folder(root / "target")), drafters)

    def spec(self, method: str = "plain", budget: int = 6, prompt: str = "Hi 你好") -> Spec:
        drafter = self.drafters.get(find(method).network, "")
        return Spec(self.target, drafter, method, {}, prompt, sampling=Sampling(seed=1), budget=budget, device="cpu")


def wait(jobs: Jobs, id: str, until: Callable[[Snapshot], bool] = lambda now: now.over) -> Snapshot:
    deadline = time.monotonic() + PATIENCE
    while not until(now := jobs.snapshot(id)):
        assert time.monotonic() < deadline, f"still {now.state}"
        time.sleep(0.005)
    return now


def under_way(now: Snapshot) -> bool:
    return bool(now.trace and now.trace.steps)
