"""EAGLE-3: fused low, middle and high features, its own vocabulary, trained on its own outputs; grown as EAGLE-2."""

from spec_core.contract import Curve, Method, Variant
from spec_core.methods.eagle2 import TREES, build, tree_knobs

METHOD = Method(
    key="eagle3",
    title="EAGLE-3",
    paper="Li et al. 2025, arXiv 2503.01840",
    idea="Reads three layers of the target, trains on its own outputs: better at each step, but still step by step.",
    knobs=tree_knobs(tokens=59, depth=8, top_k=10),
    build=build,
    network="eagle3",
    order=4,
    sweep=(*({"shape": "chain", "depth": depth} for depth in range(1, 4)), *TREES),
    curves=(
        Curve("chain", 1, lambda length: {"shape": "chain", "depth": length}, at_least=3.0),
        Curve("tree", 1, lambda length: {"shape": "tree", "depth": length}),
        Curve("budget", 1, lambda nodes: {"shape": "tree", "tokens": nodes}),
    ),
    drawn={"shape": "sampled", "depth": 4},
    lessons={"chain": Variant("chat", {"shape": "chain", "depth": 5})},
)
