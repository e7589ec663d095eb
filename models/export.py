"""Writes a bundled drafter as other programs expect it: `python -m models.export FOLDER OUT`.

Ours carry no copy of the target's embedding. Published EAGLE files do, some EAGLE-3 files do, DFlash files never.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from models import catalog, files, formats
from models.decoder import ConfigError
from models.fetch import FetchError
from models.load import LoadError, resolve

EMBEDDING = "embed_tokens.weight"


def embedding_of(target: str) -> Tensor:
    """The embedding table of a catalog key, a Hugging Face id or a folder."""
    tensors = files.read_tensors(resolve(catalog.find(target).source))
    return tensors["model." + EMBEDDING]


def export(folder: Path, out: Path, target: str, embed: bool = False) -> str:
    """Copy a drafter folder to `out`, with the target's embedding where its layout has one; returns what was done."""
    if out.exists() and any(out.iterdir()):
        raise LoadError(f"{out} is not empty: name a folder that does not exist yet")
    config, tensors = files.read_json(folder / "config.json"), files.read_tensors(folder)
    kind = formats.kind_of(config, tensors)
    if kind == "dflash" and embed:
        raise LoadError("a DFlash drafter has no place for an embedding: leave out --embed")
    added = kind == "eagle" or embed
    if added:
        tensors[EMBEDDING] = embedding_of(target).to(tensors["fc.weight"].dtype)
    out.mkdir(parents=True, exist_ok=True)
    save_file({name: t.contiguous() for name, t in tensors.items()}, out / "model.safetensors", {"format": "pt"})
    for path in (path for path in folder.iterdir() if path not in files.weight_files(folder)):
        shutil.copy(path, out / path.name)
    return f"{kind} drafter written to {out}, {'with' if added else 'without'} the target's embedding"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m models.export", description="Write a drafter for other programs.")
    parser.add_argument("folder", type=Path, help="a drafter, such as models/weights/smollm2-135m/eagle")
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("--target", help="its target: a catalog key, an id or a folder (default: the folder above)")
    parser.add_argument("--embed", action="store_true", help="add the embedding to an EAGLE-3 drafter too")
    args = parser.parse_args(argv)
    try:
        print(export(args.folder, args.out, args.target or args.folder.resolve().parent.name, args.embed))
    except (ConfigError, FetchError, OSError) as error:
        print(f"export: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
