"""EAGLE: one small layer predicts the target's next feature; a fixed tree of guesses hangs on it."""

from typing import TYPE_CHECKING

from spec_core.contract import Curve, Drafter, Knob, Knobs, Method, Variant
from spec_core.trace import Sampling

if TYPE_CHECKING:
    from models.load import Model, Network

TOP_K = 10

# The published tree mc_sim_7b_63: entry j of a path is the rank of the token among its parent's best ten.
STATIC_TREE = (
    *((0,), (1,), (2,), (3,)),
    *((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)),
    *((0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 2, 1), (1, 0, 0)),
    *((0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 0, 2)),
    *((0, 0, 0, 0, 0), (0, 0, 0, 0, 1)),
)


def build(model: "Model", network: "Network", knobs: Knobs, sampling: Sampling) -> Drafter:
    from spec_core.growth import FeatureDrafter, grow_chain, grow_static

    depth, shape = int(knobs["depth"]), knobs["shape"]
    if shape == "tree":
        grow = grow_static([path for path in STATIC_TREE if len(path) <= depth], TOP_K)
    else:
        grow = grow_chain(depth, sampling if shape == "sampled" else None)
    return FeatureDrafter(model, network, grow)


METHOD = Method(
    key="eagle",
    title="EAGLE",
    paper="Li et al. 2024, arXiv 2401.15077",
    idea="Guesses the target's next feature instead of the next word, one small layer per step, in a fixed tree.",
    knobs=(
        Knob(
            "shape",
            "tree",
            "Fixed tree, argmax chain, or chain drawn from q and tested with reject",
            choices=("tree", "chain", "sampled"),
        ),
        Knob("depth", 5, "Levels below the root (the fixed tree has 5); in a chain, K", 1, 31),
    ),
    build=build,
    network="eagle",
    order=2,
    sweep=(
        *({"shape": "chain", "depth": depth} for depth in range(1, 4)),
        *({"shape": "tree", "depth": depth} for depth in (1, 2)),
    ),
    curves=(Curve("chain", 1, lambda length: {"shape": "chain", "depth": length}),),
    drawn={"shape": "sampled", "depth": 4},
    lessons={"chain": Variant("code", {"shape": "chain"})},
)
