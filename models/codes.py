"""Weights in the few bits they were published with, found by their values.

At few rows a product takes as long as its weight takes to read: one that is read in four bits instead of 32 answers
several times sooner. Nothing is rounded for that: a coding is taken only where it gives the weight back bit for bit.
`models.tiles` multiplies with what is found here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LANES = 16  # outputs in one vector
GROUP = 2 * LANES  # outputs made together: they lie side by side, so that nothing is summed across a vector
BLOCK = 32  # inputs that share a scale, as in GGUF's codings
TINY = 1e-30  # stands for a step of zero, where all weights of a block are one number


@dataclass(frozen=True)
class Codes:
    """A weight [out, in] in a coding. data: bytes, [out / 32, in, bytes of 32 outputs]; scales: float32,
    [out / 32, in / 32, kinds of scale, 32]."""

    coding: str
    data: Tensor
    scales: Tensor

    @property
    def bytes(self) -> int:
        """How much there is to read."""
        return self.data.nbytes + self.scales.nbytes


def grouped(rows: Tensor) -> Tensor:
    """[out, n] → [out / 32, n, 32]: the outputs of a group beside each other."""
    return rows.unflatten(0, (-1, GROUP)).transpose(1, 2)


def blocks(weight: Tensor) -> Tensor:
    """[out, in] → [out, in / 32, 32]."""
    return weight.unflatten(-1, (-1, BLOCK))


def nibbles(weight: Tensor) -> Codes | None:
    """least + step · (0 … 15), GGUF's Q4_1: the steps of a block reach from its least weight to its greatest."""
    block = blocks(weight)
    least = block.amin(-1, keepdim=True)
    step = ((block.amax(-1, keepdim=True) - least) / 15).half().float()
    codes = ((block - least) / step.clamp_min(TINY)).round_().clamp_(0, 15)
    if not torch.equal(torch.addcmul(least, codes, step), block):
        return None
    wide = grouped(codes.flatten(-2).to(torch.uint8))
    data = wide[..., :LANES] | wide[..., LANES:] << 4
    scales = torch.stack([grouped(step[..., 0]), grouped(least[..., 0])], dim=2)
    return Codes("nibbles", data.contiguous(), scales.contiguous())


def octets(weight: Tensor) -> Codes | None:
    """step · (-127 … 127), GGUF's Q8_0: the weight of a block that is farthest from zero is 127 steps away."""
    block = blocks(weight)
    step = (block.abs().amax(-1, keepdim=True) / 127).half().float()
    codes = (block / step.clamp_min(TINY)).round_().clamp_(-127, 127)
    if not torch.equal(codes * step, block):
        return None
    data = grouped(codes.flatten(-2).to(torch.int8)).contiguous()
    return Codes("octets", data.view(torch.uint8), grouped(step[..., 0])[:, :, None].contiguous())


def halves(weight: Tensor) -> Codes | None:
    """bfloat16, the upper half of a float32."""
    half = weight.bfloat16()
    if not torch.equal(half.float(), weight):
        return None
    data = grouped(half.view(torch.int16)).contiguous()
    return Codes("halves", data.view(torch.uint8), torch.empty(0))


def encode(weight: Tensor) -> Codes | None:
    """The narrowest coding that gives `weight` [out, in], float32, back bit for bit; None where there is none."""
    if weight.shape[0] % GROUP or weight.shape[1] % BLOCK:
        return None
    for coding in (nibbles, octets, halves):
        if coding(weight[:GROUP]) and (found := coding(weight)):  # a wrong one shows in the first rows
            return found
    return None
