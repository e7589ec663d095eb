"""The stored features as training batches: whole dialogues of like length, padded behind."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from spec_core.training.features import DOCUMENT

WINDOW = 16  # batches that are sorted by length together: enough to pad little, few enough to stay random


@dataclass(frozen=True)
class Batch:
    """Dialogues side by side. Row t holds token t, the features the target had there, and its choice for t + 1."""

    ids: Tensor  # [B, n]
    choice: Tensor  # [B, n], -1 where the next token is no answer token: the loss mask
    features: Tensor  # [B, n, wanted · H], fp32
    last: Tensor  # [B, n, H], the feature behind the final norm: what soft targets are made of
    tokens: int  # real tokens, padding left out

    @property
    def positions(self) -> Tensor:
        return torch.arange(self.ids.shape[1]).expand_as(self.ids)


def floats(rows: np.ndarray) -> Tensor:
    """bf16 bits → fp32."""
    return torch.from_numpy(np.ascontiguousarray(rows)).view(torch.bfloat16).float()


class Store:
    """What `features` wrote, mapped into memory; opening it again shows what was added meanwhile."""

    def __init__(self, folder: Path):
        path = folder / "index.json"
        if not path.exists():
            raise SystemExit("there are no features yet: run python -m spec_core.training.features first")
        index = json.loads(path.read_text())
        tokens, layers = index["tokens"], tuple(index["layers"])
        self.layers: tuple[int, ...] = layers
        self.hidden: int = index["hidden"]
        shape = (tokens, len(layers), self.hidden)
        self.rows = np.memmap(folder / "hidden.bin", dtype=np.int16, mode="r", shape=shape)
        self.ids = np.fromfile(folder / "ids.bin", dtype=np.int32, count=tokens)
        self.choice = np.fromfile(folder / "choice.bin", dtype=np.int32, count=tokens)
        self.documents = np.fromfile(folder / "documents.bin", dtype=DOCUMENT, count=index["documents"])

    def numbers(self, held_out: bool) -> list[int]:
        """Which dialogues are for training, or the others."""
        return np.flatnonzero(self.documents["held_out"] == held_out).tolist()

    def frequent(self, count: int) -> list[int]:
        """The `count` ids that training answers use most, ascending; the smallest ids fill a short list up."""
        answers = [self.ids[self.span(i, answer=True)] for i in self.numbers(held_out=False)]
        ids, seen = np.unique(np.concatenate(answers), return_counts=True)
        ranked = [*ids[np.argsort(-seen, kind="stable")].tolist(), *range(count)]
        return sorted(list(dict.fromkeys(ranked))[:count])

    def span(self, number: int, answer: bool = False) -> slice:
        document = self.documents[number]
        start, end = int(document["start"]), int(document["start"] + document["length"])
        return slice(start + int(document["prompt"]) if answer else start, end)

    def batch(self, numbers: Sequence[int], layers: Sequence[int]) -> Batch:
        """Those dialogues, with the features of `layers` (hidden_states indices) side by side in that order."""
        columns = [self.layers.index(layer) for layer in (*layers, self.layers[-1])]
        spans = [self.span(i) for i in numbers]
        n = max(s.stop - s.start for s in spans)
        ids = torch.zeros(len(spans), n, dtype=torch.long)
        choice = torch.full_like(ids, -1)
        rows = torch.zeros(len(spans), n, len(columns), self.hidden)
        for i, span in enumerate(spans):
            length = span.stop - span.start
            ids[i, :length] = torch.from_numpy(self.ids[span])
            choice[i, :length] = torch.from_numpy(self.choice[span])
            rows[i, :length] = floats(self.rows[span][:, columns])
        return Batch(ids, choice, rows[:, :, :-1].flatten(2), rows[:, :, -1], sum(s.stop - s.start for s in spans))


def epoch(store: Store, size: int, seed: str) -> Iterator[list[int]]:
    """Every training dialogue once, in groups of `size` that have about the same length."""
    rng = random.Random(seed)
    numbers = store.numbers(held_out=False)
    rng.shuffle(numbers)
    for start in range(0, len(numbers), WINDOW * size):
        window = sorted(numbers[start : start + WINDOW * size], key=lambda i: int(store.documents["length"][i]))
        groups = [window[i : i + size] for i in range(0, len(window), size)]
        rng.shuffle(groups)
        yield from groups
