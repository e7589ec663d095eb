"""A folder's files → JSON and tensors, believing nothing: no code is run, no shard is missed, no number is NaN.

`.bin` files are pickles, which can hold programs; only those that hold plain tensors are opened. `auto_map`, the code
some configs point at, is never looked at.
"""

import hashlib
import json
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from models.decoder import ConfigError

Tensors = dict[str, Tensor]
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
TABLES = ("d2t", "t2d")  # the vocabulary maps: tensors that are no weights
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


class FormatError(ConfigError):
    """A model folder that cannot be used; the message says why and what to do."""


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FormatError(
            f"{path.parent.name} has no {path.name}: point at a folder with config and weights"
        ) from error
    except (ValueError, RecursionError, OSError) as error:
        raise FormatError(f"{path.name} is not JSON: download it again ({short(error)})") from error
    if not isinstance(found, dict):
        raise FormatError(f"{path.name} holds no JSON object: take the file that belongs to the weights")
    return found


def weight_files(folder: Path) -> list[Path]:
    """The weights of a folder: what its index lists, else model*.safetensors, else other ones, else its .bin files."""
    for name in INDEXES:
        if (folder / name).exists() and (name.startswith("model") or not any(folder.glob("*.safetensors"))):
            return listed(folder, name)
    for pattern in ("model*.safetensors", "*.safetensors", "pytorch_model*.bin"):
        if shards := sorted(folder.glob(pattern)):
            return shards
    raise FormatError(f"{folder.name} holds no *.safetensors and no pytorch_model.bin: download the weights")


def listed(folder: Path, index: str) -> list[Path]:
    """The shards an index names; all must be here, and be files of this folder."""
    shards = read_json(folder / index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()) or not shards:
        raise FormatError(f"{index} has no weight_map: download it again")
    names = sorted(set(shards.values()))
    if strange := [name for name in names if Path(name).name != name]:
        raise FormatError(f"{index} names {strange[0]!r}, which is no file of this folder: do not use it")
    if lost := [name for name in names if not (folder / name).exists()]:
        raise FormatError(f"{folder.name} lacks {', '.join(lost)}, named in {index}: finish the download")
    return [folder / name for name in names]


def read_tensors(folder: Path) -> Tensors:
    """All tensors of a folder, memory-mapped where the file allows it: they take memory only when they are used."""
    found: Tensors = {}
    for path in weight_files(folder):
        part = read_file(path)
        if twice := sorted(found.keys() & part.keys()):
            raise FormatError(f"{path.name} holds {twice[0]} again: keep one set of weight files in the folder")
        found |= part
    return found


def read_file(path: Path) -> Tensors:
    try:
        tensors = load_file(path) if path.suffix == ".safetensors" else read_pickle(path)
    except FormatError:
        raise
    except Exception as error:  # safetensors, pickle and zip each raise their own
        raise FormatError(f"{path.name} cannot be read: download it again ({short(error)})") from error
    check_tensors(path.name, tensors)
    return tensors


def read_pickle(path: Path) -> Any:
    """A .bin through PyTorch's restricted reader, which knows tensors and calls nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd pickles, which are refused or read all the same
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:
        if asked := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise FormatError(
                f"{path.name} is a pickle that asks for {asked[1]}: it was not opened, as such a file can run any "
                "program; get the weights as .safetensors"
            ) from error
        if isinstance(error, pickle.UnpicklingError):
            raise FormatError(
                f"{path.name} is damaged, or a pickle with more in it than tensors: it was not opened; download it "
                "again, or get the weights as .safetensors"
            ) from error
        raise


def check_tensors(name: str, tensors: Any) -> None:
    """Only plain tensors under names, in memory of this machine, of a number type we know."""
    if not isinstance(tensors, dict) or not tensors:
        raise FormatError(f"{name} holds no table of tensors: take the file with the weights")
    for key, tensor in tensors.items():
        if not isinstance(key, str) or not isinstance(tensor, Tensor):
            raise FormatError(f"{name} holds {key!r}, which is no tensor: take the file with the weights alone")
        if tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise FormatError(f"{name}: {key} is no plain tensor: save it again as .safetensors")


def check_types(tensors: Tensors) -> None:
    """Weights must be of a floating type that is not quantised."""
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS and name not in TABLES:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise FormatError(f"{name} is stored as {kind}: only float32, float16 and bfloat16 weights are supported")


def check_finite(weights: Iterable[tuple[str, Tensor]]) -> None:
    """No NaN: it decodes losslessly all the same and guesses nothing."""
    for name, weight in weights:
        if weight.numel() and not all(bool(edge.isfinite()) for edge in weight.aminmax()):
            raise FormatError(f"{name} holds NaN or infinity: the file is damaged, download it again")


def stored_dtype(tensors: Tensors) -> torch.dtype:
    """The number type most of the weights are stored in."""
    sizes = {kind: sum(t.numel() for t in tensors.values() if t.dtype == kind) for kind in FLOATS}
    return max(FLOATS, key=lambda kind: sizes[kind])


def fingerprint(folder: Path) -> str:
    """A short hash of what a folder holds: its config and, per weight file, the size and the first and last 64 kB."""
    return digest(weight_files(folder), (folder / "config.json").read_bytes())


def digest(paths: Iterable[Path], start: bytes = b"") -> str:
    """A short hash of names, sizes, and the first and last 64 kB of files."""
    found = hashlib.sha256(start)
    for path in paths:
        size = path.stat().st_size
        with path.open("rb") as file:
            found.update(f"{path.name} {size}".encode() + file.read(65536))
            file.seek(max(0, size - 65536))
            found.update(file.read())
    return found.hexdigest()[:16]


def short(error: Exception) -> str:
    """An error in one line, cut where libraries begin to give advice."""
    return " ".join(str(error).split())[:160]
