"""How EAGLE-family drafters grow: one dependent draft pass per level, each with its own LM-head call.

`FeatureDrafter` keeps the head's cache true to the target's features; a growth rule (static tree, dynamic tree, chain)
spends the passes. All scores are fp32 sums, ties go to the earlier candidate, so a parent never loses to its child.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from models.heads import Eagle3Head, EagleHead
from models.load import Model, Network
from spec_core.contract import Clock, Draft
from spec_core.playback import draft_cache
from spec_core.target import CHUNK
from spec_core.trace import DraftTree, Losers, Sampling, tidy
from spec_core.tree import chain, losers
from spec_core.verify import draw, law

CHAIN_LOOK = 10  # candidates ranked at each place of a chain, to show what lost


@dataclass(frozen=True)
class Guess:
    """The head's reading after some nodes: out [b, H] to feed back, the best k token ids and log q, each [b, k]."""

    out: Tensor
    tokens: list[list[int]]
    scores: list[list[float]]


@dataclass
class Sprout:
    """A tree while it grows, in the order its candidates were found. Candidate -1 is the root."""

    root: int
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    own: list[float] = field(default_factory=list)  # log q at its place
    total: list[float] = field(default_factory=list)  # log q of the whole path
    passes: list[int] = field(default_factory=list)
    expanded: list[int] = field(default_factory=list)
    number: int = 0  # draft passes so far

    def branch(self, parents: Sequence[int], guess: Guess) -> list[int]:
        """Record every child of `parents` (a row of `guess` each); returns their numbers, parent by parent."""
        first = len(self.tokens)
        for parent, tokens, scores in zip(parents, guess.tokens, guess.scores, strict=True):
            base = self.total[parent] if parent >= 0 else 0.0
            self.expanded.append(parent)
            self.tokens += tokens
            self.parents += [parent] * len(tokens)
            self.own += scores
            self.total += (torch.tensor(scores) + base).tolist()
            self.passes += [self.number] * len(tokens)
        self.number += 1
        return list(range(first, len(self.tokens)))

    def best(self, among: Sequence[int], n: int) -> list[int]:
        """The n candidates of highest total, best first; equal ones keep their order."""
        return sorted(among, key=lambda i: -self.total[i])[:n]

    def finish(self, kept: Sequence[int], clock: Clock) -> DraftTree:
        """Kept and expanded candidates become nodes, in order; every other one is a loser at its parent."""
        shown = sorted({*kept, *(i for i in self.expanded if i >= 0)})
        node = {-1: 0} | {candidate: i for i, candidate in enumerate(shown, 1)}
        alive, grown = set(kept), set(self.expanded)
        with clock.measure("record"):
            others = self.lost(node)
        return DraftTree(
            tokens=[self.root, *(self.tokens[i] for i in shown)],
            parents=[-1, *(node[self.parents[i]] for i in shown)],
            passes=[-1, *(self.passes[i] for i in shown)],
            probs=[1.0, *(tidy(math.exp(self.own[i])) for i in shown)],
            beam=[True, *(i in grown for i in shown)],
            kept=[0, *(node[i] for i in shown if i in alive)],
            others=others,
        )

    def lost(self, node: dict[int, int]) -> list[Losers]:
        """The children of expanded candidates that are no nodes."""
        below: dict[int, list[int]] = {parent: [] for parent in sorted(self.expanded, key=lambda i: node[i])}
        for i, parent in enumerate(self.parents):
            below[parent].append(i)
        return [self.lost_at(node[parent], found, node) for parent, found in below.items()]

    def lost_at(self, parent: int, found: list[int], node: dict[int, int]) -> Losers:
        drafted = {self.tokens[i] for i in found if i in node}
        return losers(parent, [self.tokens[i] for i in found], [math.exp(self.own[i]) for i in found], drafted)


class FeatureDrafter:
    """Guesses the target's next feature, reads a token off it, and goes on from its own guess.

    The stable part of the cache holds only rows made from true target features; whatever a growth rule appends is
    cropped after every draft (EAGLE calls it stable_kv).
    """

    def __init__(self, model: Model, network: Network, grow: "Grow"):
        if not isinstance(network.module, EagleHead | Eagle3Head):
            raise TypeError(f"{network.id} is no EAGLE head")
        self.model, self.head, self.grow = model, network.module, grow
        self.layers = self.head.config.feature_layers
        self.cache = draft_cache(self.head, model.decoder.model.embed_tokens.weight, self)
        self.waiting: list[int] = []  # tokens whose feature is here but whose successor is not in the cache yet
        self.features: list[Tensor] = []

    def observe(self, tokens: list[int], features: Tensor, clock: Clock) -> None:
        self.waiting += tokens
        self.features.append(features)
        if not self.cache.length and len(tokens) > 1:
            self.extend(self.waiting[1:], clock)

    @torch.inference_mode()
    def propose(self, root: int, rng: torch.Generator, clock: Clock) -> Draft:
        successors = [*self.waiting[1:], root]
        hidden = self.extend(successors, clock)
        stable = self.cache.length
        draft = self.grow(self, root, hidden, rng, clock)
        self.cache.crop(stable)
        return draft

    @torch.inference_mode()
    def extend(self, successors: list[int], clock: Clock) -> Tensor:
        """Pair waiting features, each with the token after it, in the stable cache; returns the last output [1, H]."""
        n = len(successors)
        features, later = torch.cat(self.features).split([n, len(self.waiting) - n])
        positions = list(range(self.cache.length, self.cache.length + n))
        out, self.waiting, self.features = features, self.waiting[n:], [later]
        with clock.measure("draft", n, 1):
            for part in (slice(i, i + CHUNK) for i in range(0, n, CHUNK)):
                out = self.run(successors[part], self.head.fuse(features[None, part]), positions[part], None)
        return out[-1:]

    def run(self, tokens: list[int], hidden: Tensor, positions: list[int], mask: Tensor | None) -> Tensor:
        """One draft pass over rows [1, n, H]; returns outputs [n, H]. mask as in the head's forward."""
        device = self.model.device
        words = self.head.words(self.model.decoder.model.embed_tokens)
        embedded = words(torch.tensor([tokens], device=device))
        place = torch.tensor([positions], device=device)
        self.cache.reserve(self.cache.length + len(tokens))
        return self.head(embedded, hidden, place, self.cache, mask)[0]

    def law(self, out: Tensor, clock: Clock) -> Tensor:
        """Draft logits of rows [b, H], over the draft vocabulary, in fp32: the LM-head call of this level."""
        with clock.measure("head", out.shape[0]):
            return self.head.logits(out, self.model.decoder.lm_head).float()

    def read(self, out: Tensor, k: int, clock: Clock) -> Guess:
        """The k best tokens after each row of out [b, H], as target ids with log-probabilities."""
        scores = torch.log_softmax(self.law(out, clock), dim=-1)
        best = scores.topk(min(k, scores.shape[-1]), dim=-1)
        return Guess(out, self.head.to_target(best.indices).tolist(), best.values.tolist())

    def level(self, tokens: list[int], out: Tensor, depth: int, mask: Tensor) -> Tensor:
        """Run nodes of one level: their tokens, their parents' outputs [b, H]; all share one position."""
        position = self.cache.length - mask.shape[-1] + len(tokens) + depth
        hidden = self.head.feedback(out)[None]
        return self.run(tokens, hidden, [position] * len(tokens), self.whole(mask))

    def whole(self, mask: Tensor) -> Tensor:
        """A mask over the tree's columns [b, tree] → over all columns: every stable row is visible."""
        stable = self.cache.length - (mask.shape[-1] - mask.shape[-2])
        return torch.nn.functional.pad(mask, (stable, 0), value=True)


Grow = Callable[[FeatureDrafter, int, Tensor, torch.Generator, Clock], Draft]


def sight(mask: Tensor | None, parents: list[int], device: torch.device) -> Tensor:
    """Mask rows [b, tree + b] of a new level: each node sees what its parent's row saw, and itself.

    `mask`: rows of the level before; parents: their row per new node (None, and ignored, at the first level).
    """
    own = torch.eye(len(parents), dtype=torch.bool, device=device)
    return own if mask is None else torch.cat([mask[parents], own], dim=-1)


def grow_dynamic(nodes: int, depth: int, top_k: int) -> Grow:
    """EAGLE-2 (arXiv 2406.16858 §4): expand the top_k most confident nodes of each level, then keep the best `nodes`.

    `depth`: levels below the root, so depth - 1 passes behind the first. nodes: drafted tokens kept, root not counted.
    """

    def grow(drafter: FeatureDrafter, root: int, hidden: Tensor, rng: torch.Generator, clock: Clock) -> Draft:
        sprout = Sprout(root)
        beam = sprout.branch([-1], drafter.read(hidden, top_k, clock))
        out, mask, above = hidden.expand(len(beam), -1), None, [0] * len(beam)
        for level in range(depth - 1):
            mask = sight(mask, above, hidden.device)
            with clock.measure("draft", len(beam), 1):
                out = drafter.level([sprout.tokens[i] for i in beam], out, level, mask)
            guess = drafter.read(out, top_k, clock)
            grown = sprout.branch(beam, guess)
            place = {candidate: row for row, candidate in enumerate(beam)}
            beam = sprout.best(grown, top_k)
            above = [place[sprout.parents[i]] for i in beam]
            out = out[above]
        kept = sprout.best(range(len(sprout.tokens)), nodes)
        return Draft(sprout.finish(kept, clock))

    return grow


def grow_static(paths: Sequence[Sequence[int]], top_k: int) -> Grow:
    """EAGLE-1 (arXiv 2401.15077 §4.2): a fixed tree; entry j of a path is a token's rank among its parent's best.

    Only nodes with children are run through the head. Nodes are found by their path, level by level.
    """
    by_level = [[p for p in paths if len(p) == d] for d in range(1, max(map(len, paths), default=0) + 1)]
    inner = {tuple(p[:-1]) for p in paths}

    def grow(drafter: FeatureDrafter, root: int, hidden: Tensor, rng: torch.Generator, clock: Clock) -> Draft:
        sprout, kept = Sprout(root), {}
        sprout.branch([-1], drafter.read(hidden, top_k, clock))
        first: dict[tuple[int, ...], int] = {(): 0}  # where the children of an expanded path start among the candidates
        rows: dict[tuple[int, ...], int] = {(): 0}
        out, mask = hidden, None
        for level, wanted in enumerate(by_level):
            kept |= {tuple(p): first[tuple(p[:-1])] + p[-1] for p in wanted}
            beam = [tuple(p) for p in wanted if tuple(p) in inner]
            if not beam:
                break
            above = [rows[path[:-1]] for path in beam]
            mask = sight(mask, above, hidden.device)
            with clock.measure("draft", len(beam), 1):
                out = drafter.level([sprout.tokens[kept[p]] for p in beam], out[above], level, mask)
            grown = sprout.branch([kept[p] for p in beam], drafter.read(out, top_k, clock))
            rows = {path: row for row, path in enumerate(beam)}
            width = len(grown) // len(beam)
            first |= {path: grown[0] + width * row for path, row in rows.items()}
        return Draft(sprout.finish(list(kept.values()), clock))

    return grow


def grow_chain(depth: int, sampling: Sampling | None = None) -> Grow:
    """K = `depth` guesses one behind the other: the argmax each time, or with `sampling` a real draw from q.

    A drawn chain brings its q rows along and is verified with `reject`; an argmax chain is verified with `match`.
    """
    drawn = sampling if sampling is not None and sampling.temperature > 0 else None

    def grow(drafter: FeatureDrafter, root: int, hidden: Tensor, rng: torch.Generator, clock: Clock) -> Draft:
        tokens, probs, others, rows, mask = [], [], [], [], None
        out = hidden
        for level in range(depth):
            if level:
                mask = sight(mask, [0], hidden.device)
                with clock.measure("draft", 1, 1):
                    out = drafter.level([tokens[-1]], out, level - 1, mask)
            logits = drafter.law(out, clock)[0]
            q = law(logits, drawn) if drawn else None
            index = int(logits.argmax()) if q is None else draw(q, rng)
            tokens.append(int(drafter.head.to_target(torch.tensor(index, device=logits.device))))
            rows += [spread(q, drafter)] if q is not None else []
            with clock.measure("record"):
                seen = law(logits, Sampling()) if q is None else q
                probs.append(float(seen[index]))
                others.append(ranked(level, seen, tokens[-1], drafter))
        tree = chain(root, tokens, probs, range(depth), others)
        return Draft(tree, rows if drawn else None)

    return grow


def ranked(level: int, q: Tensor, token: int, drafter: FeatureDrafter) -> Losers:
    """What lost at one place of a chain."""
    best = q.topk(min(CHAIN_LOOK, len(q)))
    return losers(level, drafter.head.to_target(best.indices).tolist(), best.values.tolist(), {token})


def spread(q: Tensor, drafter: FeatureDrafter) -> Tensor:
    """q over the draft vocabulary → over the target's, zero where the drafter has no word."""
    full = torch.zeros(drafter.model.decoder.config.vocab, dtype=q.dtype, device=q.device)
    where = drafter.head.to_target(torch.arange(len(q), device=q.device))
    return full.index_copy(0, where, q)
