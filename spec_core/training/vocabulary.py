"""Cross-entropy against the target's own distribution, on part of its vocabulary: 49,152 rows would cost more than the
drafter itself."""

import torch
import torch.nn.functional as F
from torch import Tensor

FREQUENT = 2048  # ids that answers use most: always compared
OTHERS = 1024  # ids drawn anew per batch, so that no rare row can stay too attractive


class Vocabulary:
    """The frozen LM head of the target, or the rows of a draft vocabulary, a part at a time."""

    def __init__(self, head: Tensor):
        self.head = head

    def draw(self, needed: Tensor) -> Tensor:
        """The rows that one batch compares: the `needed` ones and some others."""
        others = torch.randint(len(self.head), (OTHERS,))
        return self.head[torch.cat([needed, others]).unique()]

    def logits(self, rows: Tensor) -> Tensor:
        return F.linear(rows, self.head)


def soft_loss(guess: Tensor, feature: Tensor, head: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean cross-entropy of head(guess) against softmax(head(feature)), rows weighted if `weights` says so."""
    with torch.no_grad():
        wanted = F.linear(feature, head).softmax(-1)
    losses = F.cross_entropy(F.linear(guess, head), wanted, reduction="none")
    return losses.mean() if weights is None else (losses * weights).sum() / weights.sum()
