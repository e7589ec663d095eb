"""Two settings per method: the paper's, and the one measured fastest here. The latter are kept in presets.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from spec_core.contract import Method
from spec_core.trace import KnobValue

FILE = Path(__file__).parent / "presets.json"

Preset = Literal["published", "this device"]
PRESETS: tuple[Preset, ...] = get_args(Preset)


class Tried(Struct, frozen=True):
    """One setting that was timed. drafted: most tokens it puts to the target in a step."""

    method: str
    knobs: dict[str, KnobValue]
    drafted: int
    tau: float
    tokens_per_second: float
    speedup: float


class Measured(Struct, frozen=True):
    """The file: knobs per method key, where and when they were measured, and everything they were chosen from."""

    device: str
    date: str
    presets: dict[str, dict[str, KnobValue]]
    tried: list[Tried] = []


def read(path: Path = FILE) -> Measured:
    return msgspec.json.decode(path.read_bytes(), type=Measured)


def preset(method: Method, name: Preset, path: Path = FILE) -> dict[str, KnobValue]:
    """All knobs of `method` in that preset; what was never measured here stays as published."""
    return method.settle(read(path).presets.get(method.key, {}) if name == "this device" else {})


def write(
    device: str,
    date: str,
    found: Mapping[str, Mapping[str, KnobValue]],
    path: Path = FILE,
    tried: Sequence[Tried] = (),
) -> None:
    """Put newly measured knobs into the file. Methods that were not measured now keep theirs, if from this device."""
    empty = Measured(device, date, {})
    old = read(path) if path.exists() else empty
    old = old if old.device == device else empty
    knobs = old.presets | {key: dict(knobs) for key, knobs in found.items()}
    kept = [one for one in old.tried if one.method not in found]
    raw = msgspec.json.encode(Measured(device, date, dict(sorted(knobs.items())), [*kept, *tried]))
    path.write_bytes(msgspec.json.format(raw, indent=2) + b"\n")
