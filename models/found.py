"""What a drafter folder holds, said before it meets a target: kind, layout, sizes, and what to know about it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models import files, formats
from models.cards import TITLES
from models.files import Tensors

REMARKS = {
    "code": "its auto_map points at code, which is not run",
    "tied": "its config calls the head tied and the file holds one of its own: the file's is used",
    "after": "norm_output: it is fed back after the norm, as vLLM, SGLang and speculators read it; SpecForge before "
    "September 2026 meant the norm before the head by it, so a poor second slot may mean that",
    "base": f"no rope_theta in its config: it turns with {formats.EAGLE_THETA:.0f}, as these heads were trained",
}


@dataclass(frozen=True)
class Found:
    """kind: eagle, eagle3 or dflash. numbers: its weights in millions, without copies of the target's embedding.

    words: of a head of its own, 0 without one. block: slots of a DFlash drafter, 0 for others. remarks: keys of
    REMARKS, things that are no error and may still surprise.
    """

    kind: str
    layout: str
    numbers: float
    dtype: str
    files: str
    hidden: int
    vocab: int
    words: int
    layers: int
    block: int
    remarks: tuple[str, ...]

    @property
    def title(self) -> str:
        return TITLES[self.kind]

    @property
    def lines(self) -> list[str]:
        """For a terminal."""
        head = f", a head of {self.words} words" if self.words else ""
        block = [f"{self.layers} layers, blocks of {self.block} slots"] if self.block else []
        return [
            f"{self.title} drafter in the layout of {self.layout}",
            f"{self.numbers:.1f} million weights in {self.dtype}, {self.files}",
            f"hidden size {self.hidden}, vocabulary {self.vocab}{head}",
            *block,
            *(REMARKS[key] for key in self.remarks),
        ]


def look(folder: Path) -> Found:
    """Read a drafter folder; raises FormatError where it is none."""
    raw, tensors = files.read_json(folder / "config.json"), formats.strip(files.read_tensors(folder))
    config = formats.flatten(raw)
    kind = formats.kind_of(config, tensors)
    own = sum(t.numel() for name, t in tensors.items() if name not in (formats.EMBEDDING, *files.TABLES))
    return Found(
        kind=kind,
        layout=formats.layout_of(config, kind),
        numbers=own / 1e6,
        dtype=str(files.stored_dtype(tensors)).removeprefix("torch."),
        files=", ".join(path.name for path in files.weight_files(folder)),
        hidden=number(config.get("hidden_size")),
        vocab=number(config.get("vocab_size")),
        words=len(tensors[formats.LM_HEAD]) if formats.LM_HEAD in tensors else 0,
        layers=number(config.get("num_hidden_layers")) if kind == "dflash" else 1,
        block=number(formats.extra(config, "block_size")) if kind == "dflash" else 0,
        remarks=tuple(key for key in REMARKS if holds(key, config, tensors, kind)),
    )


def number(value: Any) -> int:
    """A size as the config states it, 0 where it states none; whether it can be is the loader's to say."""
    return value if isinstance(value, int) else 0


def holds(remark: str, config: dict[str, Any], tensors: Tensors, kind: str) -> bool:
    """Whether a remark is to be made."""
    if remark == "code":
        return bool(config.get("auto_map"))
    if remark == "tied":
        return bool(config.get("tie_word_embeddings")) and formats.LM_HEAD in tensors
    if remark == "after":
        return kind == "eagle3" and bool(config.get("norm_output"))
    return kind != "dflash" and not config.get("rope_theta") and not config.get("rope_parameters")
