"""Where training starts: the target's own last layer, norm and head rows, which already know the language."""

from pathlib import Path

import torch
from torch import Tensor, nn

from models import formats
from models.decoder import Decoder, Layer
from models.heads import DrafterNetwork
from models.layers import MLP
from spec_core.training.data import Store

SAMPLE = 16  # dialogues that the feature scale is measured on


def feature_scale(store: Store, layers: tuple[int, ...]) -> Tensor:
    """Root mean square per feature over answer rows [wanted · H].

    Deep layers run from 1 to 300 from one dimension to the next (and to 30,000 on the first token). fc is trained on
    rows divided by this, so that one learning rate suits all its columns; the published file has it undone.
    """
    numbers = store.numbers(held_out=False)[:SAMPLE]
    batch = store.batch(numbers, layers)
    rows = batch.features[batch.choice >= 0]
    return rows.pow(2).mean(0).sqrt().clamp(min=1e-3)


def last_layer(decoder: Decoder) -> Layer:
    return decoder.model.layers[-1]  # type: ignore[return-value]


def copy_(to: nn.Module, weight: Tensor) -> None:
    with torch.no_grad():
        to.weight.copy_(weight)  # type: ignore[union-attr, operator]


def copy_mlp(to: MLP, source: MLP, gain: float = 1.0) -> None:
    copy_(to.gate_proj, source.gate_proj.weight)
    copy_(to.up_proj, source.up_proj.weight)
    copy_(to.down_proj, source.down_proj.weight * gain)


def ridge(x: Tensor, y: Tensor, strength: float = 3e-3) -> Tensor:
    """The weight [y width, x width] of the best linear guess of y from x, lightly held towards zero."""
    x, y = x.double(), y.double()
    gram = x.T @ x
    gram.diagonal().add_(strength * gram.diagonal().mean())
    return torch.linalg.solve(gram, x.T @ y).T.float()


def low_rank(weight: Tensor, x: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """weight ≈ up @ down with `rank` numbers between, exact where the answers weight · x vary most."""
    answers = x @ weight.T
    basis = torch.linalg.eigh(answers.T @ answers)[1][:, -rank:]
    return basis, basis.T @ weight


def earlier(folder: Path, decoder: Decoder) -> DrafterNetwork:
    """Weights to go on from, where the target is: read on the CPU, whatever device new tensors are born on."""
    with torch.device("cpu"):
        found = formats.load(folder, decoder.config).float()
    return found.to(decoder.device).requires_grad_(True)
