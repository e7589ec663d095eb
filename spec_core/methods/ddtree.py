"""DDTree: DFlash's block, read as a tree of its likeliest prefixes; the pass stays one, the target checks more."""

from typing import TYPE_CHECKING

from spec_core.contract import Drafter, Knob, Knobs, Method
from spec_core.trace import Sampling

if TYPE_CHECKING:
    from models.load import Model, Network


def build(model: "Model", network: "Network", knobs: Knobs, sampling: Sampling) -> Drafter:
    from spec_core.prefixes import PrefixDrafter

    return PrefixDrafter(model, network, int(knobs["block"]), int(knobs["layers"]), int(knobs["tokens"]))


METHOD = Method(
    key="ddtree",
    title="DDTree",
    paper="Ringel & Romano 2026, arXiv 2604.12989",
    idea="DFlash's one pass, read as a tree: the likeliest of all texts its slots allow go to the target together.",
    knobs=(
        Knob("tokens", 59, "Nodes of the tree, root not counted; 59 as in EAGLE's trees, so that both compare", 1, 256),
        Knob("block", 16, "Slots of the block, the root's included: no path is longer than one token fewer", 2, 32),
        Knob("layers", 5, "Draft layers run, from the first", 1, 5),
    ),
    build=build,
    network="dflash",
    order=6,
    sweep=tuple({"block": block, "tokens": nodes} for block, nodes in ((4, 4), (4, 7), (6, 7), (6, 11), (8, 15))),
)
