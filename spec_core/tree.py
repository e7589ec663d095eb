"""One tree type for every draft: the root alone, a chain, a block, a grown tree. Helpers that need no torch."""

from collections.abc import Sequence

import msgspec

from spec_core.trace import DraftTree, Losers, depths, tidy


def trunk(root: int) -> DraftTree:
    """A draft of nothing: the root alone."""
    return DraftTree([root], [-1], [-1], [1.0], [False], [0])


def chain(
    root: int,
    tokens: Sequence[int],
    probs: Sequence[float],
    passes: Sequence[int],
    others: list[Losers] | None = None,
    layers: list[list[int]] | None = None,
) -> DraftTree:
    """Guesses one behind the other; node i was guessed by passes[i - 1]."""
    n = len(tokens)
    return DraftTree(
        tokens=[root, *tokens],
        parents=list(range(-1, n)),
        passes=[-1, *passes],
        probs=[1.0, *map(tidy, probs)],
        beam=[True] * n + [False],
        kept=list(range(n + 1)),
        others=others or [],
        layers=layers or [],
    )


def losers(node: int, tokens: Sequence[int], probs: Sequence[float], drafted: set[int]) -> Losers:
    """The children considered at `node` (best first) that were not drafted: three by name, the rest by number."""
    lost = [(t, tidy(p)) for t, p in zip(tokens, probs, strict=True) if t not in drafted]
    return Losers(node, [t for t, _ in lost[:3]], [p for _, p in lost[:3]], max(0, len(lost) - 3))


def shallower(tree: DraftTree, depth: int) -> DraftTree:
    """The same draft with only nodes down to `depth` sent to the target: near the context limit."""
    level = depths(tree)
    kept = [node for node in tree.kept if level[node] <= depth]
    return tree if kept == tree.kept else msgspec.structs.replace(tree, kept=kept)


def kept_parents(tree: DraftTree) -> list[int]:
    """Parents of the kept nodes, as rows of the target pass; -1 for the root."""
    row = {node: i for i, node in enumerate(tree.kept)}
    return [row.get(tree.parents[node], -1) for node in tree.kept]


def visible(parents: Sequence[int]) -> list[list[bool]]:
    """Who attends to whom: a node sees itself and its ancestors, and nothing else of the tree."""
    rows: list[list[bool]] = []
    for i, parent in enumerate(parents):
        row = list(rows[parent]) if parent >= 0 else [False] * len(parents)
        row[i] = True
        rows.append(row)
    return rows


def children(tree: DraftTree) -> dict[int, list[int]]:
    """Kept children of every kept node, in drafting order."""
    found: dict[int, list[int]] = {node: [] for node in tree.kept}
    for node in tree.kept[1:]:
        found[tree.parents[node]].append(node)
    return found
