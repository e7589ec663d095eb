"""What a picture is: shapes with place and look, and frames that say what changes. Plain data, drawn by the stage."""

import unicodedata
from dataclasses import asdict, dataclass, field
from typing import Literal

Kind = Literal["rect", "text", "path", "dot"]
Value = float | str | bool

MONO = 0.6  # width of a character in the monospaced face, in em; CJK takes two


@dataclass
class Shape:
    """One thing to draw. x, y: top left of a rect, centre of a dot, baseline start of a text.

    look: words the style sheet knows (fate, role); hue: a method key or "". label is drawn inside a rect, note at its
    right end, mark in its corner. about, bars: what the reader is told when pointing at it, and the name of a chart.
    `on`: visible before the first frame. front: it stays above what comes later, and moves all the time.
    """

    id: str
    kind: Kind
    x: float
    y: float
    w: float = 0
    h: float = 0
    look: str = ""
    hue: str = ""
    label: str = ""
    note: str = ""
    mark: str = ""
    size: float = 13
    d: str = ""
    about: str = ""
    bars: str = ""
    anchor: Literal["start", "middle", "end"] = "start"
    on: bool = False
    front: bool = False


@dataclass
class Bars:
    """Pairs of values to compare, named by text: rows of [label, first, second]; -1 stands for a value nobody has."""

    rows: list[list[str | float]]


@dataclass
class Frame:
    """One moment. set: what changes, by shape id. caption: a short headline; say: the sentence for a screen reader.

    stop: a moment worth resting at (the end of a step). at: the step it belongs to. rest: milliseconds to stay when
    playing; 0 leaves it to the stage, which allows for reading.
    """

    caption: str
    say: str
    set: dict[str, dict[str, Value]] = field(default_factory=dict)
    stop: bool = False
    at: int = 0
    rest: float = 0


@dataclass
class Scene:
    width: float
    height: float
    shapes: list[Shape]
    frames: list[Frame]
    bars: dict[str, Bars] = field(default_factory=dict)

    def data(self) -> dict[str, object]:
        """The scene as JSON data; fields at their defaults are left out."""
        return {
            "size": [self.width, self.height],
            "shapes": [slim(asdict(shape), Shape) for shape in self.shapes],
            "frames": [asdict(frame) for frame in self.frames],
            "bars": {name: bars.rows for name, bars in self.bars.items()},
        }


def slim(values: dict[str, object], kind: type) -> dict[str, object]:
    defaults = {name: f.default for name, f in kind.__dataclass_fields__.items()}
    return {name: value for name, value in values.items() if value != defaults[name]}


def state(scene: Scene, position: int) -> dict[str, dict[str, Value]]:
    """What is changed from the start once frames 0 … position have been shown: the stage's own rule, for tests."""
    now: dict[str, dict[str, Value]] = {}
    for frame in scene.frames[: position + 1]:
        for name, change in frame.set.items():
            now[name] = now.get(name, {}) | change
    return now


def width(text: str, size: float, em: float = MONO) -> float:
    """Estimated width of `text` in pixels; wide East Asian characters and emoji count double."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * em * (len(text) + wide)


def fit(text: str, room: float, size: float, em: float = MONO) -> str:
    """`text`, shortened with … until it fits `room` pixels."""
    if width(text, size, em) <= room:
        return text
    while text and width(text + "…", size, em) > room:
        text = text[:-1]
    return text + "…" if text else ""
