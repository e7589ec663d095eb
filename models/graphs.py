"""The target's pass in a few fixed shapes, for CUDA to play back as one graph instead of launching each kernel.

Rows and visible cache are rounded up; what was added is hidden by the mask and written where nothing is read. A shape
that cannot be captured, or whose graph does not give what the pass gave, runs without. Asked for with
DRAFTSCOPE_GRAPHS=1, since no GPU has run it yet.
"""

import os
import sys
import weakref
from collections.abc import Callable, Sequence

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


class Graph:
    """`work` captured on tensors of its own, which every playing fills anew."""

    def __init__(self, work: Work, inputs: Sequence[Tensor]):
        self.inputs = [one.clone() for one in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                work(*self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = work(*self.inputs)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        for mine, new in zip(self.inputs, inputs, strict=True):
            mine.copy_(new)
        self.graph.replay()
        return tuple(one.clone() for one in self.outputs)


class Graphs:
    """Plays a pass back, captured once per shape of its inputs."""

    def __init__(self, capture: Callable[[Work, Sequence[Tensor]], Work] = Graph):
        self.capture = capture
        self.known: dict[tuple[torch.Size, ...], Work] = {}

    def __call__(self, work: Work, *inputs: Tensor) -> tuple[Tensor, ...]:
        shapes = tuple(one.shape for one in inputs)
        if shapes not in self.known:
            self.known[shapes] = self.made(work, inputs)
        return self.known[shapes](*inputs)

    def made(self, work: Work, inputs: Sequence[Tensor]) -> Work:
        """A graph that was seen to agree, or the work itself."""
        try:
            graph = self.capture(work, inputs)
            pairs = zip(graph(*inputs), work(*inputs), strict=True)
            if all(torch.allclose(a, b, rtol=1e-2, atol=1e-2) for a, b in pairs):
                return graph
            reason = "the graph gives something else"
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
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

    def score(self, ids: Tensor, positions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """ids, positions [1, n], mask [n, n] or None for one row → features [n, width], logits [n, vocab]."""
        n, base = ids.shape[1], self.cache.length
        rows = next(count for count in ROWS if count >= n)
        span = min(-(-(base + rows) // SPAN) * SPAN, self.cache.capacity)
        sees = torch.zeros(rows, span, dtype=torch.bool, device=ids.device)
        sees[:, :base] = True
        sees[:n, base : base + n] = True if mask is None else mask
        added = (0, rows - n)
        places = torch.arange(base, base + rows, device=ids.device)
        features, logits = self.play(self.work, F.pad(ids, added), F.pad(positions, added), places, sees)
        self.cache.advance(n)
        return features[:n], logits[:n]


RESTING: "weakref.WeakKeyDictionary[Decoder, list[FixedTarget]]" = weakref.WeakKeyDictionary()


def borrow(decoder: Decoder, capacity: int, wanted: Sequence[int], borrower: object) -> FixedTarget:
    """One that rests, or a new one; it rests again when its borrower is gone."""
    resting = RESTING.setdefault(decoder, [])
    fitting = (one for one in resting if one.cache.capacity >= capacity and one.wanted == tuple(wanted))
    found = next(fitting, None)
    if found:
        resting.remove(found)
    else:
        found = FixedTarget(decoder, capacity, wanted)
    found.cache.crop(0)
    weakref.finalize(borrower, resting.append, found)
    return found
