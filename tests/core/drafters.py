"""Drafters made wrong or right on purpose, the plain text computed the slow way, and a run that is watched."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor

from models.load import Model, Network
from spec_core.contract import Clock, Draft, Drafter, Knobs, Method
from spec_core.decode import Plan, decode
from spec_core.target import CachedTarget
from spec_core.trace import DraftTree, EndReason, Sampling, Step, depths
from spec_core.tree import chain

LONG = 512  # the toy target's context


@torch.inference_mode()
def logits_of(model: Model, ids: Sequence[int]) -> Tensor:
    """Logits [n, vocab] of a whole text: one causal pass, no cache, no tree."""
    rows = torch.tensor([list(ids)], device=model.device)
    out = model.decoder(rows, torch.arange(len(ids), device=model.device)[None])
    return model.decoder.lm_head(out.last[0]).float()


def greedy(model: Model, prompt: Sequence[int], n: int) -> list[int]:
    """What plain decoding must say, recomputed from nothing for every token."""
    text = list(prompt)
    for _ in range(n):
        text.append(int(logits_of(model, text)[-1].argmax()))
    return text[len(prompt) :]


def tree_of(root: int, parents: Sequence[int], tokens: Sequence[int]) -> DraftTree:
    """A draft of any shape, all of it kept; node i + 1 is tokens[i] below parents[i]."""
    n = len(tokens)
    inner = set(parents)
    beam = [node in inner for node in range(n + 1)]
    passes, probs = [-1] + [0] * n, [1.0] + [0.5] * n
    return DraftTree([root, *tokens], [-1, *parents], passes, probs, beam, list(range(n + 1)))


class Scripted:
    """Drafts whatever `make` says for the text so far, the root included."""

    def __init__(self, make: Callable[[list[int]], DraftTree], layers: tuple[int, ...] = ()):
        self.make, self.layers = make, layers
        self.text: list[int] = []
        self.features: list[Tensor] = []

    def observe(self, tokens: list[int], features: Tensor, clock: Clock) -> None:
        assert len(tokens) == len(features)
        self.text += tokens
        self.features.append(features)

    def propose(self, root: int, rng: torch.Generator, clock: Clock) -> Draft:
        with clock.measure("draft", 1, 1):
            return Draft(self.make([*self.text, root]))


class Warped:
    """A method's own drafter with every guess replaced; the tree keeps its shape."""

    def __init__(self, inner: Drafter, warp: Callable[[DraftTree], list[int]]):
        self.inner, self.warp, self.layers = inner, warp, inner.layers

    def observe(self, tokens: list[int], features: Tensor, clock: Clock) -> None:
        self.inner.observe(tokens, features, clock)

    def propose(self, root: int, rng: torch.Generator, clock: Clock) -> Draft:
        tree = self.inner.propose(root, rng, clock).tree
        return Draft(msgspec.structs.replace(tree, tokens=[root, *self.warp(tree)[1:]]))


def mirror(text: Sequence[int], k: int, good: int, vocab: int) -> Scripted:
    """Knows the whole `text` and drafts k tokens of it, of which exactly the first `good` are right."""

    def make(so_far: list[int]) -> DraftTree:
        right = text[len(so_far) : len(so_far) + k]
        guesses = [t if i < good else (t + 1) % vocab for i, t in enumerate(right)]
        return chain(so_far[-1], guesses, [1.0] * len(guesses), [0] * len(guesses))

    return Scripted(make)


def bushy_mirror(text: Sequence[int], levels: int, place: int, vocab: int, layers: tuple[int, ...]) -> Scripted:
    """As `mirror`, in a tree: three siblings per level, the right one at `place`, a wrong child below every decoy."""

    def make(so_far: list[int]) -> DraftTree:
        parents, tokens, above = [], [], 0
        for right in text[len(so_far) : len(so_far) + levels]:
            first = len(tokens) + 1
            parents += [above] * 3
            tokens += [right if i == place else (right + 1 + i) % vocab for i in range(3)]
            parents += [first + i for i in range(3) if i != place]
            tokens += [right, right]
            above = first + place
        return tree_of(so_far[-1], parents, tokens)

    return Scripted(make, layers)


def build(method: Method, model: Model, networks: dict[str, Network], knobs: Knobs, sampling: Sampling) -> Drafter:
    """A fresh drafter of `method`, as a run makes it."""
    return method.build(model, networks.get(method.network), method.settle(knobs), sampling)


def modest(method: Method, most: int = 4) -> dict[str, bool | int | float | str]:
    """Every number of a method at `most` or below: its whole mechanism, in little time."""
    numbers = {k.name: k.published for k in method.knobs if type(k.published) is int}
    return {name: min(value, most) for name, value in numbers.items()}


@dataclass(frozen=True)
class Played:
    """A finished run with its target, for a look at the cache."""

    steps: list[Step]
    reason: EndReason
    target: CachedTarget

    @property
    def ids(self) -> list[int]:
        return [token for step in self.steps for token in step.committed]


def play(model: Model, drafter: Drafter, plan: Plan, clock: Clock | None = None) -> Played:
    """Run the loop and watch it: cache length and committed tokens after every step, cache contents at the end."""
    target = CachedTarget(model, drafter.layers, min(plan.limit, len(plan.prompt) + plan.budget))
    steps, text = [], list(plan.prompt)
    loop = decode(target, drafter, plan, clock or Clock())
    while True:
        try:
            step = next(loop)
        except StopIteration as stop:
            check_cache(model, target, text[:-1])
            return Played(steps, stop.value, target)
        check_step(step, plan, len(text))
        steps.append(step)
        text += step.committed
        assert target.cache.length == len(text) - 1


def check_step(step: Step, plan: Plan, before: int) -> None:
    """What was committed is the accepted path and the bonus, cut at most; nothing was asked beyond the limit."""
    tree, path = step.draft, step.verdict.path
    offered = [*(tree.tokens[node] for node in path[1:]), step.verdict.bonus]
    assert step.committed == offered[: len(step.committed)]
    assert step.committed
    level = depths(tree)
    assert before + max(level[node] for node in tree.kept) + 1 <= plan.limit


def check_cache(model: Model, target: CachedTarget, text: Sequence[int]) -> None:
    """Every layer holds exactly what a fresh pass over the committed text would have put there."""
    fresh = CachedTarget(model, (), len(text))
    fresh.prefill(list(text), Clock())
    n = len(text)
    assert target.cache.length == n
    for ours, theirs in ((target.cache.keys, fresh.cache.keys), (target.cache.values, fresh.cache.values)):
        torch.testing.assert_close(ours[:, :, :, :n], theirs[:, :, :, :n], atol=2e-4, rtol=1e-3)
