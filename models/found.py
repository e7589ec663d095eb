"""What a drafter folder holds, said before it meets a target: kind, layout, sizes, and what to know about it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models import files, formats
from models.cards import TITLES
from models.files import Tensors


@dataclass(frozen=True)
class Found:
    """kind: eagle, eagle3 or dflash. remarks: what is no error and may still surprise."""

    kind: str
    layout: str
    facts: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        return [f"{TITLES[self.kind]} drafter in the layout of {self.layout}", *self.facts, *self.remarks]


def look(folder: Path) -> Found:
    """Read a drafter folder; raises FormatError where it is none."""
    raw, tensors = files.read_json(folder / "config.json"), formats.strip(files.read_tensors(folder))
    config = formats.flatten(raw)
    kind = formats.kind_of(config, tensors)
    facts = [weights(folder, tensors), sizes(config), *(blocks(config) if kind == "dflash" else [])]
    return Found(kind, formats.layout_of(config, kind), tuple(facts), tuple(remarks(config, tensors, kind)))


def weights(folder: Path, tensors: Tensors) -> str:
    own = sum(t.numel() for name, t in tensors.items() if name not in (formats.EMBEDDING, "t2d", "d2t"))
    names = ", ".join(path.name for path in files.weight_files(folder))
    kind = str(files.stored_dtype(tensors)).removeprefix("torch.")
    return f"{own / 1e6:.1f} million weights in {kind}, {names}"


def sizes(config: dict[str, Any]) -> str:
    words = config.get("draft_vocab_size")
    head = f", a head of {words} words" if words else ""
    return f"hidden size {config.get('hidden_size')}, vocabulary {config.get('vocab_size')}{head}"


def blocks(config: dict[str, Any]) -> list[str]:
    block, layers = formats.extra(config, "block_size"), config.get("num_hidden_layers")
    return [
        f"{layers} layers, blocks of {block} slots, which draft {block - 1 if isinstance(block, int) else '?'} tokens"
    ]


def remarks(config: dict[str, Any], tensors: Tensors, kind: str) -> list[str]:
    """Things other programs stumbled over."""
    said = []
    if config.get("auto_map"):
        said.append("its auto_map points at code, which is not run")
    if config.get("tie_word_embeddings") and formats.LM_HEAD in tensors:
        said.append("its config calls the head tied and the file holds one of its own: the file's is used")
    if kind == "eagle3" and config.get("norm_output"):
        said.append(
            "norm_output: it is fed back after the norm, as vLLM, SGLang and speculators read it; SpecForge before "
            "September 2026 meant the norm before the head by it, so a poor second slot may mean that"
        )
    if kind != "dflash" and not config.get("rope_theta") and not config.get("rope_parameters"):
        said.append(
            f"no rope_theta in its config: it turns with {formats.EAGLE_THETA:.0f}, as these heads were trained"
        )
    return said
