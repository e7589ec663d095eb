"""Two settings per method: the paper's, and the one measured fastest here. The latter are kept in presets.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from spec_core.contract import Method
from spec_core.trace import KnobValue

FILE = Path(__file__).parent / "presets.json"

Preset = Literal["published", "this device"]
PRESETS: tuple[Preset, ...] = get_args(Preset)


class Measured(Struct, frozen=True):
    """The file: knobs per method key, and where and when they were measured."""

    device: str
    date: str
    presets: dict[str, dict[str, KnobValue]]


def read(path: Path = FILE) -> Measured:
    return msgspec.json.decode(path.read_bytes(), type=Measured)


def preset(method: Method, name: Preset, path: Path = FILE) -> dict[str, KnobValue]:
    """All knobs of `method` in that preset; what was never measured here stays as published."""
    return method.settle(read(path).presets.get(method.key, {}) if name == "this device" else {})


def write(device: str, date: str, found: Mapping[str, Mapping[str, KnobValue]], path: Path = FILE) -> None:
    """Put newly measured knobs into the file. Methods that were not measured now keep theirs."""
    kept = read(path).presets if path.exists() else {}
    all_of_them = kept | {key: dict(knobs) for key, knobs in found.items()}
    raw = msgspec.json.encode(Measured(device, date, dict(sorted(all_of_them.items()))))
    path.write_bytes(msgspec.json.format(raw, indent=2) + b"\n")
