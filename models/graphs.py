"""The target's pass in a few fixed shapes, for CUDA to play back as one graph instead of launching each kernel.

Rows and visible cache are rounded up; what was added is hidden by the mask and written where nothing is read. A shape
that cannot be captured, or whose graph does not give what the pass gives, runs launch by launch. Asked for with
DRAFTSCOPE_GRAPHS=1, since no GPU has run it yet.
"""

import os
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from models.cache import KVCache
from models.decoder import Decoder

SPAN = 256  # the cache is looked at in multiples of so many rows
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WARM_UP = 3  # runs before a capture, as PyTorch asks

Work = Callable[..., tuple[Tensor, ...]]


def asked(device: torch.device) -> bool:
    return device.type == "cuda" and os.environ.get("DRAFTSCOPE_GRAPHS") == "1"


class Slots(KVCache):
    """A cache as a pass of fixed shape sees it: rows go where `places` [n] says, and all of `span` is looked at."""

    def __init__(self, cache: KVCache, places: Tensor, span: int):
        self.keys, self.values, self.capacity, self.length = cache.keys, cache.values, cache.capacity, 0
        self.places, self.span = places, span

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer].index_copy_(2, self.places, k)
        self.values[layer].index_copy_(2, self.places, v)
        return self.keys[layer, :, :, : self.span], self.values[layer, :, :, : self.span]

    def room(self, layer: int, rows: int) -> tuple[Tensor, Tensor]:
        raise NotImplementedError("rows of a fixed pass do not lie behind each other for whoever writes them himself")

    def advance(self, n: int) -> None:
        """The real cache counts its rows."""


@cache
def pool(device: torch.device) -> Any:
    """Memory that all graphs share: they play one after another, and what they give is copied at once."""
    return torch.cuda.graph_pool_handle()


class Graph:
    """`work` captured on tensors of its own, which every playing fills anew."""

    def __init__(self, work: Work, inputs: Sequence[Tensor]):
        self.inputs, device = [one.clone() for one in inputs], inputs[0].device
        self.inputs[0].zero_()  # so that whatever stays as it was captured shows in the first playing
        with torch.cuda.device(device):
            here, side = torch.cuda.current_stream(), torch.cuda.Stream()
            side.wait_stream(here)
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    work(*self.inputs)
            here.wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(self.graph, pool=pool(device)):
                    self.outputs = work(*self.inputs)
            finally:
                torch.cuda.set_stream(here)  # a capture that fails may leave its own

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        for mine, new in zip(self.inputs, inputs, strict=True):
            mine.copy_(new)
        self.graph.replay()
        return tuple(one.clone() for one in self.outputs)


def shapes(inputs: Sequence[Tensor]) -> tuple[torch.Size, ...]:
    return tuple(one.shape for one in inputs)


class Graphs:
    """Plays a pass back, captured once per shape of its inputs."""

    def __init__(self, capture: Callable[[Work, Sequence[Tensor]], Work] = Graph):
        self.capture = capture
        self.known: dict[tuple[torch.Size, ...], Work] = {}

    def ready(self, inputs: Sequence[Tensor]) -> bool:
        return shapes(inputs) in self.known

    def prepare(self, work: Work, inputs: Sequence[Tensor]) -> None:
        self.known[shapes(inputs)] = self.made(work, inputs)

    def __call__(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return self.known[shapes(inputs)](*inputs)

    def made(self, work: Work, inputs: Sequence[Tensor]) -> Work:
        """A graph that was seen to agree, or the work itself."""
        try:
            graph = self.capture(work, inputs)
            pairs = zip(graph(*inputs), work(*inputs), strict=True)
            if all(torch.allclose(a, b, rtol=1e-2, atol=1e-2) for a, b in pairs):
                return graph
            reason = "the graph gives something else"
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
        print(f"a pass over {inputs[0].shape[-1]} rows runs without a graph: {reason}", file=sys.stderr)
        return work


class FixedTarget:
    """A decoder with a cache of its own and the graphs that read it; kept for later runs, as capturing takes long."""

    def __init__(self, decoder: Decoder, capacity: int, wanted: Sequence[int]):
        self.decoder, self.wanted = decoder, tuple(wanted)
        self.cache, self.play = decoder.new_cache(capacity), Graphs()
        self.cache.keys.zero_()  # rows nobody has written are multiplied by zero, which must not meet a NaN
        self.cache.values.zero_()

    def work(self, ids: Tensor, positions: Tensor, places: Tensor, sees: Tensor) -> tuple[Tensor, ...]:
        out = self.decoder(ids, positions, Slots(self.cache, places, sees.shape[1]), sees, self.wanted)
        return out.features[0], self.decoder.lm_head(out.last[0])

    def inputs(self, ids: Tensor, positions: Tensor, mask: Tensor | None) -> list[Tensor]:
        """ids, positions [1, n], mask [n, n] or None for one row → the same in a fixed shape."""
        n, base = ids.shape[1], self.cache.length
        rows = next(count for count in ROWS if count >= n)
        span = min(-(-(base + rows) // SPAN) * SPAN, self.cache.capacity)
        sees = torch.zeros(rows, span, dtype=torch.bool, device=ids.device)
        sees[:, :base] = True
        sees[:n, base : base + n] = True if mask is None else mask
        added = (0, rows - n)
        places = torch.arange(base, base + rows, device=ids.device)
        return [F.pad(ids, added), F.pad(positions, added), places, sees]

    def score(self, inputs: list[Tensor], n: int) -> tuple[Tensor, Tensor]:
        """What `inputs` made of n rows → features [n, width], logits [n, vocab]."""
        features, logits = self.play(inputs)
        self.cache.advance(n)
        return features[:n], logits[:n]


def borrow(decoder: Decoder, capacity: int, wanted: Sequence[int], borrower: object) -> FixedTarget:
    """One that rests, or a new one; it rests again when its borrower is gone.

    They rest with their decoder, and go with it. Room comes in powers of two, so that one serves most runs.
    """
    resting: list[FixedTarget] = decoder.__dict__.setdefault("resting", [])
    capacity = 1 << (capacity - 1).bit_length()
    mine = [one for one in resting if one.wanted == tuple(wanted)]
    resting[:] = [one for one in resting if one not in mine]
    found = next((one for one in mine if one.cache.capacity >= capacity), None)
    found = found or FixedTarget(decoder, capacity, wanted)
    found.cache.crop(0)
    weakref.finalize(borrower, resting.append, found)
    return found
