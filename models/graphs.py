"""Passes in a few fixed shapes, for CUDA to play back as one graph instead of launching each kernel.

Rows and visible cache are rounded up; what was added is hidden by the mask and written where nothing is read. A shape
that cannot be captured, or whose graph does not give what the pass gives, runs launch by launch. Asked for with
DRAFTSCOPE_GRAPHS=1, since no GPU has run it yet.
"""

import os
import sys
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.cache import KVCache
from models.layers import causal

SPAN = 256  # the cache is looked at in multiples of so many rows
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WARM_UP = 3  # runs before a capture, as PyTorch asks

Work = Callable[..., tuple[Tensor, ...]]
Pass = Callable[..., tuple[Tensor, ...]]  # a network's, called with tensors, what stands for the cache, and a mask
Aside = Callable[[], AbstractContextManager[None]]


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


Key = tuple[Hashable, tuple[torch.Size, ...]]


def key_of(name: Hashable, inputs: Sequence[Tensor]) -> Key:
    return name, tuple(one.shape for one in inputs)


class Graphs:
    """Plays passes back, captured once per name and shape of their inputs."""

    def __init__(self, capture: Callable[[Work, Sequence[Tensor]], Work] = Graph):
        self.capture = capture
        self.known: dict[Key, Work] = {}

    def ready(self, name: Hashable, inputs: Sequence[Tensor]) -> bool:
        return key_of(name, inputs) in self.known

    def prepare(self, name: Hashable, work: Work, inputs: Sequence[Tensor]) -> None:
        self.known[key_of(name, inputs)] = self.made(name, work, inputs)

    def __call__(self, name: Hashable, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return self.known[key_of(name, inputs)](*inputs)

    def made(self, name: Hashable, work: Work, inputs: Sequence[Tensor]) -> Work:
        """A graph that was seen to agree, or the work itself."""
        try:
            graph = self.capture(work, inputs)
            pairs = zip(graph(*inputs), work(*inputs), strict=True)
            if all(torch.allclose(a, b, rtol=1e-2, atol=1e-2) for a, b in pairs):
                return graph
            reason = "the graph gives something else"
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
        print(f"{name} over {tuple(inputs[0].shape)} runs without a graph: {reason}", file=sys.stderr)
        return work


class PlayedCache(KVCache):
    """A cache whose networks run in fixed shapes, and the graphs they are played from.

    aside: what a capture is to happen in. It is no decoding, as compiling a kernel is none.
    """

    def __init__(self, cache: KVCache, aside: Aside = nullcontext):
        self.keys, self.values, self.capacity, self.length = cache.keys, cache.values, cache.capacity, cache.length
        self.aside, self.play = aside, Graphs()
        self.clean()

    def clean(self) -> None:
        """Rows nobody has written are multiplied by zero, which must not meet a NaN."""
        for store in (self.keys, self.values):
            store[:, :, :, self.length :] = 0

    def reserve(self, rows: int) -> None:
        """As ever; a cache that had to move leaves its graphs behind."""
        if rows > self.capacity:
            super().reserve(rows)
            self.play = Graphs()
            self.clean()

    def through(self, name: Hashable, work: Pass, new: Sequence[Tensor], mask: Tensor | None) -> tuple[Tensor, ...]:
        """A pass over n new rows, tensors [1, n, …]; gives tensors [1, n, …]. mask: [n, n or all], None = causal."""
        n = new[0].shape[1]
        rows, end = rounded(n), self.length + n
        self.reserve(self.length + rows)
        mask = causal(n, self.length, new[0].device) if mask is None else mask
        frame = self.places(n, rows), self.sees(rows, end, mask)
        found = self.played(name, work, [*(padded(one, rows) for one in new), *frame])
        self.advance(n)
        return tuple(one[:, :n] for one in found)

    def played(self, name: Hashable, work: Pass, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """`work` on these inputs and this cache; the last two are places [rows] and who sees whom […, span]."""
        if not self.play.ready(name, inputs):
            with self.aside():
                self.play.prepare(name, partial(self.fixed, work), inputs)
        return self.play(name, inputs)

    def fixed(self, work: Pass, *inputs: Tensor) -> tuple[Tensor, ...]:
        *new, places, sees = inputs
        return work(*new, Slots(self, places, sees.shape[-1]), sees)

    def places(self, n: int, rows: int, between: int = 0) -> Tensor:
        """Where n new rows go, [rows]: behind the cache; the rows added to them `between` places farther on."""
        where = torch.arange(self.length, self.length + rows, device=self.keys.device)
        where[n:] += between
        return where

    def sees(self, rows: int, end: int, mask: Tensor | None) -> Tensor:
        """Which places each row sees, [rows, span]: the first `end`; of the last ones what `mask` [n, ≤ end] says."""
        span = min(-(-end // SPAN) * SPAN, self.capacity)
        found = torch.zeros(rows, span, dtype=torch.bool, device=self.keys.device)
        found[:, :end] = True
        if mask is not None:
            n, width = mask.shape
            found[:n, end - width : end] = mask
        return found


def playing(cache: object, rows: int) -> PlayedCache | None:
    """The cache, where a pass of so many rows is to be played from a graph."""
    return cache if isinstance(cache, PlayedCache) and rows <= ROWS[-1] else None


def rounded(n: int) -> int:
    """Rows of the smallest shape that n rows fit into."""
    return next(count for count in ROWS if count >= n)


def padded(rows: Tensor, to: int, dim: int = 1) -> Tensor:
    """Zeros behind the rows that lie along `dim`, so that there are `to` of them."""
    return F.pad(rows, (0, 0) * (rows.dim() - 1 - dim) + (0, to - rows.shape[dim]))


def borrow(
    owner: nn.Module, kind: Hashable, capacity: int, make: Callable[[int], PlayedCache], borrower: object
) -> PlayedCache:
    """A cache that rests, or a new one; it rests again when its borrower is gone.

    They rest with the network they belong to, and go with it. Room comes in powers of two, so that one serves most
    runs. kind: what its graphs were captured for.
    """
    resting: dict[Hashable, list[PlayedCache]] = owner.__dict__.setdefault("resting", {})
    capacity = 1 << (capacity - 1).bit_length()
    found = next((one for one in resting.pop(kind, []) if one.capacity >= capacity), None) or make(capacity)
    found.crop(0)
    weakref.finalize(borrower, rest, resting, kind, found)
    return found


def rest(resting: dict[Hashable, list[PlayedCache]], kind: Hashable, one: PlayedCache) -> None:
    resting.setdefault(kind, []).append(one)
