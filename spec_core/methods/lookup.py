"""Prompt lookup: if the last few tokens stood in the text before, guess that what followed then follows now."""

from typing import TYPE_CHECKING

from spec_core.contract import Clock, Draft, Knob, Knobs, Method
from spec_core.trace import Sampling
from spec_core.tree import chain

if TYPE_CHECKING:
    import torch

    from models.load import Model


class LookupDrafter:
    """Remembers, for every run of up to `ngram` tokens, where it first stood with a token behind it."""

    layers: tuple[int, ...] = ()

    def __init__(self, ngram: int, tokens: int):
        self.ngram, self.tokens = ngram, tokens
        self.history: list[int] = []
        self.first: dict[tuple[int, ...], int] = {}

    def learn(self) -> None:
        """A token follows the history: every run that ends there becomes findable."""
        for n in range(1, min(self.ngram, len(self.history)) + 1):
            self.first.setdefault(tuple(self.history[-n:]), len(self.history))

    def observe(self, tokens: list[int], features: "torch.Tensor", clock: Clock) -> None:
        for token in tokens:
            self.learn()
            self.history.append(token)

    def propose(self, root: int, rng: "torch.Generator", clock: Clock) -> Draft:
        self.learn()
        text = [*self.history, root]
        for n in range(min(self.ngram, len(text) - 1), 0, -1):
            start = self.first.get(tuple(text[-n:]))
            if start is not None:
                guesses = text[start : start + self.tokens]
                return Draft(chain(root, guesses, [1.0] * len(guesses), [0] * len(guesses)))
        return Draft(chain(root, [], [], []))


def build(model: "Model", network: None, knobs: Knobs, sampling: Sampling) -> LookupDrafter:
    return LookupDrafter(int(knobs["ngram"]), int(knobs["tokens"]))


METHOD = Method(
    key="lookup",
    title="Prompt lookup",
    paper="Saxena 2023, prompt lookup decoding",
    idea="Copies what followed the same words earlier in the text. Costs nothing, needs repetition.",
    knobs=(
        Knob("ngram", 3, "Longest run of tokens looked for; shorter runs are tried when it is not found", 1, 8),
        Knob("tokens", 10, "Tokens copied at most (K)", 1, 64),
    ),
    build=build,
    order=1,
    sweep=tuple({"tokens": tokens} for tokens in (2, 4, 8)),
)
