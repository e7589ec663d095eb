"""Runs the target over the corpus once and keeps, in bf16, the layers that the three drafters read.

`python -m spec_core.training.features` appends chunks of dialogues; training maps the files and never runs the target.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.decoder import Decoder, Output
from models.load import load_target
from spec_core.training.corpus import Dialogue, corpus_file, read, training_dir

CHUNK = 64  # dialogues per append: what a kill can cost
ROWS = 2048  # tokens per target pass, padding included
HELD_OUT = 3  # percent of the questions, chosen by hash so that they stay the same when the corpus grows

DOCUMENT = np.dtype(
    [("start", "i8"), ("length", "i4"), ("prompt", "i4"), ("greedy", "u1"), ("held_out", "u1")], align=True
)
FILES = ("hidden.bin", "ids.bin", "choice.bin", "documents.bin")


def eagle3_layers(depth: int) -> tuple[int, ...]:
    """hidden_states indices that EAGLE-3 fuses: low, middle, high."""
    return (2, depth // 2, depth - 3)


def dflash_layers(depth: int, count: int = 5) -> tuple[int, ...]:
    """Published layer ids of DFlash, 0-based outputs: evenly spaced from 1 to depth - 3."""
    return tuple(round(1 + i * (depth - 4) / (count - 1)) for i in range(count))


def stored_layers(depth: int) -> tuple[int, ...]:
    """Every hidden_states index one of the drafters wants; the last is the feature behind the final norm."""
    return tuple(sorted({*eagle3_layers(depth), *(i + 1 for i in dflash_layers(depth)), depth}))


def features_dir() -> Path:
    return training_dir() / "features"


def held_out(dialogue: Dialogue) -> bool:
    question = np.asarray(dialogue.question, dtype=np.int32).tobytes()
    return int.from_bytes(hashlib.sha256(question).digest()[:4], "big") % 100 < HELD_OUT


def batches(dialogues: list[Dialogue], rows: int = ROWS) -> Iterator[list[Dialogue]]:
    """Groups of like length: little is padded, and the matrices stay large."""
    group: list[Dialogue] = []
    for dialogue in sorted(dialogues, key=lambda d: len(d.ids)):
        if group and (len(group) + 1) * len(dialogue.ids) > rows:
            yield group
            group = []
        group.append(dialogue)
    if group:
        yield group


def padded(dialogues: list[Dialogue]) -> Tensor:
    """ids [B, n], padded behind: no mask is needed, since causal rows never see what follows them."""
    longest = max(len(d.ids) for d in dialogues)
    return torch.tensor([d.ids + [0] * (longest - len(d.ids)) for d in dialogues])


def bits(rows: Tensor) -> np.ndarray:
    return rows.to(torch.bfloat16).contiguous().view(torch.int16).cpu().numpy().view(np.uint16)


def choices(decoder: Decoder, dialogue: Dialogue, last: Tensor) -> np.ndarray:
    """The target's own first choice behind each row, or -1 before the answer. A greedy answer spells it out."""
    found = np.full(len(dialogue.ids), -1, dtype=np.int32)
    first = dialogue.prompt_length - 1
    if dialogue.greedy:
        found[first:-1] = dialogue.answer
    else:
        found[first:-1] = decoder.lm_head(last[first:-1]).argmax(-1).cpu().numpy()
    return found


def take(decoder: Decoder, dialogues: list[Dialogue]) -> Iterator[tuple[Dialogue, np.ndarray, np.ndarray]]:
    """Per dialogue: its stored layers [n, layers, H] as bf16 bits, and the target's choices [n]."""
    layers = stored_layers(decoder.config.layers)
    ids = padded(dialogues).to(decoder.device)
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    out: Output = decoder(ids, positions, wanted=layers)
    features = bits(out.features.unflatten(-1, (len(layers), -1)))
    for i, dialogue in enumerate(dialogues):
        n = len(dialogue.ids)
        yield dialogue, features[i, :n], choices(decoder, dialogue, out.last[i, :n])


class Writer:
    """Appends to the store. `index.json` is replaced last, so it never promises what is not on disk."""

    def __init__(self, folder: Path, decoder: Decoder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        config = decoder.config
        fresh = {"layers": list(stored_layers(config.layers)), "hidden": config.hidden, "documents": 0, "tokens": 0}
        path = folder / "index.json"
        self.index = json.loads(path.read_text()) if path.exists() else fresh
        if self.index["layers"] != fresh["layers"] or self.index["hidden"] != fresh["hidden"]:
            raise SystemExit(f"{folder} holds features of another target: delete it or choose another cache folder")
        self.crop()

    def crop(self) -> None:
        """Drop what a killed run left behind the last whole chunk."""
        tokens, width = self.index["tokens"], 2 * len(self.index["layers"]) * self.index["hidden"]
        sizes = (tokens * width, tokens * 4, tokens * 4, self.index["documents"] * DOCUMENT.itemsize)
        for name, size in zip(FILES, sizes, strict=True):
            with (self.folder / name).open("ab") as file:
                file.truncate(size)

    def add(self, dialogue: Dialogue, features: np.ndarray, choice: np.ndarray) -> None:
        n = len(dialogue.ids)
        record = (self.index["tokens"], n, dialogue.prompt_length, dialogue.greedy, held_out(dialogue))
        rows = (features, np.asarray(dialogue.ids, dtype=np.int32), choice, np.array([record], dtype=DOCUMENT))
        for name, values in zip(FILES, rows, strict=True):
            with (self.folder / name).open("ab") as file:
                file.write(values.tobytes())
        self.index["tokens"] += n
        self.index["documents"] += 1

    def commit(self) -> None:
        part = self.folder / "index.json.part"
        part.write_text(json.dumps(self.index))
        part.replace(self.folder / "index.json")


def extract(decoder: Decoder, corpus: Path, folder: Path, limit: int) -> None:
    """Bring the store up to the first `limit` dialogues of the corpus."""
    writer = Writer(folder, decoder)
    waiting = islice(read(corpus), writer.index["documents"], limit)
    started, before = time.monotonic(), writer.index["tokens"]
    with torch.inference_mode():
        while chunk := list(islice(waiting, CHUNK)):
            for group in batches(chunk):
                for found in take(decoder, group):
                    writer.add(*found)
            writer.commit()
            rate = (writer.index["tokens"] - before) / (time.monotonic() - started)
            print(
                f"{writer.index['documents']} dialogues, {writer.index['tokens']:,} tokens, {rate:.0f} tokens/s",
                file=sys.stderr,
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m spec_core.training.features", description=__doc__)
    parser.add_argument("--target", default="smollm2-135m", help="which target reads the corpus")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--limit", type=int, default=10**9, help="stop after that many dialogues of the corpus")
    arguments = parser.parse_args()
    if not corpus_file().exists():
        raise SystemExit("there is no corpus yet: run python -m spec_core.training.corpus first")
    model = load_target(arguments.target, arguments.device, "fp32")
    extract(model.decoder, corpus_file(), features_dir(), arguments.limit)


if __name__ == "__main__":
    main()
