"""The loop that all drafters train in: minutes as the budget, a cosine to zero, checkpoints, a line of progress."""

import argparse
import math
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from models.catalog import BUNDLED
from models.decoder import Decoder
from models.layers import default_inv_freq
from models.load import Model, load_target
from spec_core.training.corpus import training_dir
from spec_core.training.data import Batch, Store, epoch
from spec_core.training.features import features_dir
from spec_core.training.report import Report, summarise

SAVE_EVERY = 120.0  # seconds between checkpoints
SAY_EVERY = 15.0
PAUSE = 20.0  # a step that took longer was stopped by someone, and must not use up the budget
HELD_OUT_BATCH = 8


class Task(Protocol):
    """What a drafter adds to the loop: its network, the layers it reads, its loss, and its held-out guesses."""

    @property
    def network(self) -> nn.Module: ...

    @property
    def layers(self) -> Sequence[int]: ...

    def loss(self, batch: Batch, progress: float) -> Tensor: ...

    def hits(self, batch: Batch) -> Tensor: ...


@dataclass(frozen=True)
class Plan:
    """What the command line chose. `start`: a folder of weights to go on from, instead of the target's own layers."""

    name: str
    minutes: float
    size: int
    rate: float
    seed: int
    target: str
    start: Path | None
    out: Path
    fresh: bool
    device: str

    @property
    def checkpoint(self) -> Path:
        return training_dir() / f"{self.name}.pt"

    @property
    def command(self) -> str:
        """The line that began it; its checkpoint and its folder are left out."""
        words = f"python -m spec_core.training.{self.name} --minutes {self.minutes:g} --size {self.size}"
        words += f" --rate {self.rate:g} --seed {self.seed} --target {self.target} --device {self.device}"
        return words + (f" --from {self.start}" if self.start else "")

    @property
    def what(self) -> list[str]:
        """Of what run a checkpoint is."""
        return [self.target, str(self.start or "")]


@dataclass
class State:
    """How far training is; part of the checkpoint."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    epoch: int = 0
    batch: int = 0
    losses: list[float] = field(default_factory=list)


def arguments(name: str, description: str, size: int, rate: float, minutes: float) -> Plan:
    parser = argparse.ArgumentParser(prog=f"python -m spec_core.training.{name}", description=description)
    parser.add_argument("--minutes", type=float, default=minutes, help="budget, including what a checkpoint has used")
    parser.add_argument("--size", type=int, default=size, help="dialogues per step")
    parser.add_argument("--rate", type=float, default=rate, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--from", dest="start", type=Path, help="go on from the weights in this folder")
    parser.add_argument("--out", type=Path, help="where the drafter goes (default: models/weights)")
    parser.add_argument("--fresh", action="store_true", help="ignore the checkpoint of an earlier run")
    found = parser.parse_args()
    out = found.out or BUNDLED / found.target / name
    return Plan(name, **{k: v for k, v in vars(found).items() if k != "out"}, out=out)


def open_target(plan: Plan) -> tuple[Model, Store]:
    torch.manual_seed(plan.seed)
    model = settle(plan.target, plan.device)
    if plan.start is None:
        check_rope(model.decoder)
    return model, Store(features_dir())


def check_rope(decoder: Decoder) -> None:
    """A new head turns as its target does, and its published config can say so only of plain rope."""
    rope, head_dim = decoder.config.rope, decoder.config.head_dim
    if rope.scale != 1 or not isclose(rope.inv_freq, default_inv_freq(rope.inv_freq[1] ** (-head_dim / 2), head_dim)):
        raise SystemExit("this target scales its rope, which new heads cannot be published with: start with --from")


def isclose(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(one, other, strict=True))


def settle(target: str, device: str) -> Model:
    """The target in fp32; from here on new tensors are born on its device, so that training need not name it."""
    model = load_target(target, device, "fp32")
    torch.set_default_device(model.device)
    torch.set_float32_matmul_precision("high" if model.device.type == "cuda" else "highest")
    return model


def rate_at(progress: float, step: int, peak: float) -> float:
    """Thirty steps of warm-up, then a half cosine that reaches zero with the budget."""
    return peak * min(1.0, (step + 1) / 30) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


class Trainer:
    """One run of one task; `train` may be called again after a kill and goes on where the checkpoint is."""

    def __init__(self, task: Task, store: Store, plan: Plan):
        self.task, self.store, self.plan = task, store, plan
        self.state = State()
        self.weights = [p for p in task.network.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(self.weights, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
        self.stopped = False
        if plan.checkpoint.exists() and not plan.fresh:
            self.restore()

    def restore(self) -> None:
        found = torch.load(self.plan.checkpoint, weights_only=True)
        if found.get("what") != self.plan.what:
            raise SystemExit(f"{self.plan.checkpoint} is of another target or --from: --fresh begins anew over it")
        self.task.network.load_state_dict(found["network"])
        self.optimiser.load_state_dict(found["optimiser"])
        self.state = State(**found["state"])
        torch.set_rng_state(found["random"])

    def save(self) -> None:
        part = self.plan.checkpoint.with_suffix(".part")
        found = {"network": self.task.network.state_dict(), "optimiser": self.optimiser.state_dict()}
        found |= {"state": asdict(self.state), "random": torch.get_rng_state(), "what": self.plan.what}
        torch.save(found, part)
        part.replace(self.plan.checkpoint)

    @property
    def progress(self) -> float:
        return self.state.seconds / max(60 * self.plan.minutes, 1e-9)

    def batches(self) -> Iterator[Batch]:
        """Batches without end, from where the checkpoint stood; each epoch sees what the store holds by then."""
        while True:
            for i, group in enumerate(epoch(self.store, self.plan.size, f"{self.plan.seed} {self.state.epoch}")):
                if i == self.state.batch:
                    self.state.batch += 1
                    yield self.store.batch(group, self.task.layers)
            self.state.epoch, self.state.batch = self.state.epoch + 1, 0
            self.store = Store(features_dir())

    def train(self) -> None:
        before = signal.signal(signal.SIGTERM, self.stop)
        saved = said = time.monotonic()
        batches = self.batches()
        while self.progress < 1 and not self.stopped:
            began = time.monotonic()
            self.step(next(batches))
            now = time.monotonic()
            self.state.seconds += min(now - began, PAUSE)
            if now - said > SAY_EVERY:
                said = now
                self.say()
            if now - saved > SAVE_EVERY:
                saved = now
                self.save()
        self.save()
        signal.signal(signal.SIGTERM, before)

    def stop(self, *_: object) -> None:
        """SIGTERM: finish this step, save, leave."""
        self.stopped = True

    def step(self, batch: Batch) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate_at(self.progress, self.state.step, self.plan.rate)
        loss = self.task.loss(batch, self.progress)
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimiser.step()
        self.state.step += 1
        self.state.tokens += batch.tokens
        self.state.losses = [*self.state.losses[-49:], float(loss.detach())]

    def say(self) -> None:
        state = self.state
        loss = sum(state.losses) / len(state.losses)
        left = self.plan.minutes - state.seconds / 60
        rate = state.tokens / state.seconds
        print(
            f"step {state.step}, epoch {state.epoch}, loss {loss:.3f}, {state.tokens:,} rows, {rate:.0f} rows/s, "
            f"{left:.1f} minutes left",
            file=sys.stderr,
            flush=True,
        )

    def held_out(self) -> Iterator[Batch]:
        numbers = self.store.numbers(held_out=True)
        for i in range(0, len(numbers), HELD_OUT_BATCH):
            yield self.store.batch(numbers[i : i + HELD_OUT_BATCH], self.task.layers)

    def report(self) -> Report:
        with torch.inference_mode():
            return summarise([self.task.hits(batch) for batch in self.held_out()])
