"""Runs an EAGLE or EAGLE-3 head over whole dialogues as in drafting: every row starts a draft, and each further step
reads what the step before it made of the same row."""

from collections.abc import Callable

import torch
from torch import Tensor

from models.heads import Eagle3Head, EagleHead
from spec_core.training.data import Batch


class Stack:
    """Keys and values of every unrolled step side by side, kept whole so that gradients reach all of them."""

    def __init__(self) -> None:
        self.length = 0
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.keys.append(k)
        self.values.append(v)
        return torch.cat(self.keys, dim=2), torch.cat(self.values, dim=2)

    def advance(self, n: int) -> None:
        self.length += n


def unrolled_mask(n: int, step: int) -> Tensor:
    """[n, (step + 1) n]: row i sees the sure rows up to i, and of each later step only its own row."""
    return torch.cat([torch.ones(n, n).tril(), *[torch.eye(n)] * step], dim=1).bool()


def shifted(rows: Tensor, by: int, fill: int = 0) -> Tensor:
    """Row i becomes row i + by; the end is filled up and must stay masked."""
    return torch.cat([rows[:, by:], torch.full_like(rows[:, :by], fill)], dim=1)


def unroll(
    head: EagleHead | Eagle3Head, embed: Callable[[Tensor], Tensor], batch: Batch, hidden: Tensor, steps: int
) -> list[Tensor]:
    """Outputs [B, n, H] of each step. Row i of step s has seen features up to i and tokens up to i + s + 1.

    The position is that of the feature the row stands for, i + s. Tokens are the true ones, as if every guess before
    had been right: only then does the guess count.
    """
    stack, outputs = Stack(), []
    for step in range(steps):
        embedded = embed(shifted(batch.ids, step + 1))
        mask = unrolled_mask(batch.ids.shape[1], step)
        out = head(embedded, hidden, batch.positions + step, stack, mask)
        hidden = head.feedback(out)
        outputs.append(out)
    return outputs


def judged_rows(counts: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Dialogue and row of each target distribution that `counts`, where a draft of `steps` can have led there.

    Row t tells token t + 1, which step s guesses in its row t - s - 1.
    """
    counts = counts.clone()
    counts[:, :steps] = False
    where, row = counts.nonzero(as_tuple=True)
    return where, row


def chain_hits(batch: Batch, outputs: list[Tensor], guess: Callable[[Tensor], Tensor]) -> Tensor:
    """[steps, drafts]: whether step s of the draft behind row i is token i + s + 2; all of those are answer."""
    whole = (batch.choice >= 0) & (shifted(batch.choice, len(outputs), fill=-1) >= 0)
    where, row = whole.nonzero(as_tuple=True)
    right = [guess(out[where, row]) == batch.ids[where, row + step + 2] for step, out in enumerate(outputs)]
    return torch.stack(right)
