"""How well a drafter guesses on held-out dialogues: by place in the draft, and as tokens per step of a chain."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Report:
    """accuracy[k]: how often guess k + 1 is right, given that all before it were. tau: tokens a step, chain drafts."""

    accuracy: list[float]
    tau: float
    rows: int

    def line(self) -> str:
        shown = " ".join(f"{a:.3f}" for a in self.accuracy)
        return f"accuracy by guess, given the ones before: {shown}; chain tau {self.tau:.3f} ({self.rows:,} drafts)"


def summarise(hits: Iterable[Tensor]) -> Report:
    """hits: tensors [guesses, drafts], True where that guess alone is right."""
    found = list(hits)
    if not found:
        return Report([], 1.0, 0)
    runs = torch.cat(found, dim=1).long().cumprod(0).float()  # 1 as long as everything so far was right
    kept = runs.sum(1)
    before = torch.cat([torch.tensor([float(runs.shape[1])]), kept[:-1]])
    return Report((kept / before.clamp(min=1)).tolist(), 1 + float(runs.mean(1).sum()), runs.shape[1])
