"""DFlash: one pass fills a whole block of masks at once; the target's features enter every layer as keys and values."""

from typing import TYPE_CHECKING

from spec_core.contract import Curve, Drafter, Knob, Knobs, Method, Variant
from spec_core.trace import Sampling

if TYPE_CHECKING:
    from models.load import Model, Network


def build(model: "Model", network: "Network", knobs: Knobs, sampling: Sampling) -> Drafter:
    from spec_core.block import BlockDrafter

    return BlockDrafter(model, network, int(knobs["block"]), int(knobs["layers"]), bool(knobs["guesses"]))


def curve(layers: int) -> Curve:
    """Blocks of K + 1 slots: the root's, and one for each guess."""
    flat = 1.6 if layers == 5 else 0.0
    return Curve("block", layers, lambda length: {"block": length + 1, "layers": layers}, at_most=flat)


def variants(knob: str, *values: int) -> dict[str, Variant]:
    """The published run with one knob turned: `layers-3` runs three layers."""
    return {f"{knob}-{value}": Variant("code", {knob: value}) for value in values}


METHOD = Method(
    key="dflash",
    title="DFlash",
    paper="Chen et al. 2026, arXiv 2602.06036",
    idea="Fills a block of masks in one pass, however long the block: no guess waits for the one before.",
    knobs=(
        Knob("block", 16, "Slots of the block, the root's included: it drafts one token fewer", 2, 32),
        Knob("layers", 5, "Draft layers run, from the first", 1, 5),
        Knob("guesses", False, "Also record what each layer alone would have filled in (costs time, not counted)"),
    ),
    build=build,
    network="dflash",
    order=5,
    sweep=tuple({"block": block, "layers": layers} for layers in (5, 3) for block in (3, 4, 6, 8)),
    recorded={"guesses": True},
    curves=tuple(map(curve, range(1, 6))),
    lessons=variants("layers", 1, 2, 3, 4) | variants("block", 4, 8),
)
