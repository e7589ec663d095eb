"""No drafting: one target pass per token. The yardstick every speed is measured against."""

from typing import TYPE_CHECKING

from spec_core.contract import Clock, Draft, Knobs, Method
from spec_core.trace import Sampling
from spec_core.tree import trunk

if TYPE_CHECKING:
    import torch

    from models.load import Model


class PlainDrafter:
    layers: tuple[int, ...] = ()

    def observe(self, tokens: list[int], features: "torch.Tensor", clock: Clock) -> None:
        pass

    def propose(self, root: int, rng: "torch.Generator", clock: Clock) -> Draft:
        return Draft(trunk(root))


def build(model: "Model", network: None, knobs: Knobs, sampling: Sampling) -> PlainDrafter:
    return PlainDrafter()


METHOD = Method(
    key="plain",
    title="Plain decoding",
    paper="",
    idea="One token per target pass: every token waits for the one before.",
    knobs=(),
    build=build,
    order=0,
)
