"""EAGLE-2: the same head as EAGLE; the tree grows where the drafter is confident and is cut back to a budget."""

from typing import TYPE_CHECKING

from spec_core.contract import Drafter, Knob, Knobs, Method, Variant
from spec_core.trace import Sampling

if TYPE_CHECKING:
    from models.load import Model, Network


def tree_knobs(tokens: int, depth: int, top_k: int) -> tuple[Knob, ...]:
    """The knobs of a dynamic tree with their published values."""
    return (
        Knob(
            "shape",
            "tree",
            "Dynamic tree, argmax chain, or chain drawn from q and tested with reject",
            choices=("tree", "chain", "sampled"),
        ),
        Knob("tokens", tokens, "Drafted tokens kept in the tree, root not counted", 1, 256),
        Knob("depth", depth, "Levels below the root, each one dependent draft pass; in a chain, K", 1, 31),
        Knob("top_k", top_k, "Nodes expanded per level, and children looked at per node", 1, 16),
    )


# Trees of a few nodes: on a device that pays for every row of the target pass, small is fast. Its chains are EAGLE's.
TREES = tuple(
    {"shape": "tree", "tokens": n, "depth": d, "top_k": k} for n, d, k in ((4, 2, 3), (8, 2, 6), (7, 3, 4), (11, 3, 5))
)


def turned(knob: str, *values: int) -> dict[str, Variant]:
    """The published run with one knob turned: `depth-3` stops three levels below the root."""
    return {f"{knob}-{value}": Variant("code", {knob: value}) for value in values}


def build(model: "Model", network: "Network", knobs: Knobs, sampling: Sampling) -> Drafter:
    from spec_core.growth import FeatureDrafter, grow_chain, grow_dynamic

    depth, shape = int(knobs["depth"]), knobs["shape"]
    if shape == "tree":
        grow = grow_dynamic(int(knobs["tokens"]), depth, int(knobs["top_k"]))
    else:
        grow = grow_chain(depth, sampling if shape == "sampled" else None)
    return FeatureDrafter(model, network, grow)


METHOD = Method(
    key="eagle2",
    title="EAGLE-2",
    paper="Li et al. 2024, arXiv 2406.16858",
    idea="EAGLE's head with a tree that grows where the drafter is sure, ranked and cut to a budget at every step.",
    knobs=tree_knobs(tokens=59, depth=6, top_k=10),
    build=build,
    network="eagle",
    order=3,
    sweep=TREES,
    lessons={
        **turned("tokens", 4, 8, 16, 32, 120),
        **turned("depth", 1, 2, 3, 4, 8),
        **turned("top_k", 1, 2, 4, 16),
        "twin": Variant("code", {"tokens": 25, "depth": 5}),  # as many tokens and passes as EAGLE's fixed tree
    },
)
