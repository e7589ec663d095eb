"""DDTree: a tree out of one block pass (arXiv 2604.12989). Slots are read independently of each other, so every slot's
best tokens fit behind every prefix; of all those prefixes the likeliest are put to the target."""

import heapq
from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor

from models.load import Model, Network
from spec_core.block import LOOK, BlockDrafter
from spec_core.contract import Clock
from spec_core.trace import DraftTree, Losers, tidy
from spec_core.tree import losers

Prefix = tuple[int, int, int]  # the node it hangs below, its slot, and its token's rank there


def likeliest(scores: Sequence[Sequence[float]], nodes: int) -> list[Prefix]:
    """The `nodes` prefixes of highest summed score, best first; scores [slots][rank] are log q, best rank first.

    A prefix that leaves the heap lets in the next token of its own slot and the best of the slot behind. A parent
    leaves before its children, since no log q is above 0. Entry i becomes node i + 1; node 0 is the root.
    """
    heap: list[tuple[float, int, float, Prefix]] = []  # its cost, order of arrival, its parent's cost, and itself
    arrival, found = count(), list[Prefix]()

    def offer(above: float, prefix: Prefix) -> None:
        _, slot, rank = prefix
        if slot < len(scores) and rank < len(scores[slot]):
            heapq.heappush(heap, (above - scores[slot][rank], next(arrival), above, prefix))

    offer(0.0, (0, 0, 0))
    while heap and len(found) < nodes:
        cost, _, above, (parent, slot, rank) = heapq.heappop(heap)
        found.append((parent, slot, rank))
        offer(above, (parent, slot, rank + 1))
        offer(cost, (len(found), slot + 1, 0))
    return found


class PrefixDrafter(BlockDrafter):
    """A block's pass and LM-head call, and a tree of `nodes` prefixes instead of the one path of favourites."""

    def __init__(self, model: Model, network: Network, block: int, layers: int, nodes: int):
        super().__init__(model, network, block, layers, guesses=False)
        self.nodes = nodes

    def shape(self, root: int, outputs: list[Tensor], logits: Tensor, clock: Clock) -> DraftTree:
        enough = min(max(self.nodes, LOOK), logits.shape[-1])  # the tree may be all children of the root
        best = torch.log_softmax(logits, dim=-1).topk(enough, dim=-1)
        tokens, scores = self.head.to_target(best.indices).tolist(), best.values.tolist()
        found = likeliest(scores, self.nodes)
        with clock.measure("record"):
            probs = best.values.exp().tolist()
            others = lost(found, tokens, probs)
        inner = {parent for parent, *_ in found}
        return DraftTree(
            tokens=[root, *(tokens[slot][rank] for _, slot, rank in found)],
            parents=[-1, *(parent for parent, *_ in found)],
            passes=[-1] + [0] * len(found),
            probs=[1.0, *(tidy(probs[slot][rank]) for _, slot, rank in found)],
            beam=[node in inner for node in range(len(found) + 1)],
            kept=list(range(len(found) + 1)),
            others=others,
        )


def lost(found: Sequence[Prefix], tokens: list[list[int]], probs: list[list[float]]) -> list[Losers]:
    """At every node with children: what its slot ranked and the tree left out."""
    below: dict[int, tuple[int, set[int]]] = {}
    for parent, slot, rank in found:
        below.setdefault(parent, (slot, set()))[1].add(tokens[slot][rank])
    return [
        losers(node, tokens[slot][:LOOK], probs[slot][:LOOK], drafted)
        for node, (slot, drafted) in sorted(below.items())
    ]
