"""Two settings per method: the paper's, and the one measured fastest. presets.json has the latter, and where it was."""

from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

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
    """The file: knobs per method key, where and when they were measured, and everything they were chosen from.

    kind: of the device, cpu or cuda. target: its id.
    """

    device: str
    date: str
    presets: dict[str, dict[str, KnobValue]]
    tried: list[Tried] = []
    kind: str = "cpu"
    target: str = ""

    def like(self, other: "Measured") -> bool:
        """Whether both are of one device and target."""
        return (self.device, self.kind, self.target) == (other.device, other.kind, other.target)


def read(path: Path = FILE) -> Measured:
    return msgspec.json.decode(path.read_bytes(), type=Measured)


def preset(method: Method, name: Preset, path: Path = FILE, kind: str = "cpu") -> dict[str, KnobValue]:
    """All knobs of `method` in that preset; what was never measured on that kind of device stays as published."""
    found = read(path)
    fits = name == "this device" and found.kind == kind
    return method.settle(found.presets.get(method.key, {}) if fits else {})


def write(new: Measured, path: Path = FILE) -> None:
    """Put new measurements into the file. Methods not measured now keep theirs, if of the same device and target."""
    old = read(path) if path.exists() else new
    old = old if old.like(new) else Measured(new.device, new.date, {})
    kept = [one for one in old.tried if one.method not in new.presets]
    knobs = dict(sorted({**old.presets, **new.presets}.items()))
    raw = msgspec.json.encode(replace(new, presets=knobs, tried=[*kept, *new.tried]))
    path.write_bytes(msgspec.json.format(raw, indent=2) + b"\n")
