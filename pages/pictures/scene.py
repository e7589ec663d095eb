"""What a picture is: shapes with place and look, and frames that say what changes. Plain data, drawn by the stage."""

import json
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Literal

Kind = Literal["rect", "text", "path", "dot"]
Value = float | str | bool

MONO = 0.6  # width of a character in the monospaced face, in em; CJK takes two


@dataclass
class Shape:
    """One thing to draw. x, y: top left of a rect, centre of a dot, baseline start of a text.

    look: words the style sheet knows (fate, role); hue: a method key or "". label is drawn inside a rect, note at its
    right end, mark in its corner. about, bars: what the reader is told when pointing at it, and the name of a chart.
    `on`: visible before the first frame. layer: `front` stays above what comes later and moves all the time; `margin`
    stays at the left edge when the picture is scrolled sideways, as on a phone.
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
    layer: Literal["", "front", "margin"] = ""


@dataclass
class Bars:
    """Pairs of values to compare, named by text: rows of [label, first, second]; -1 stands for a value nobody has."""

    rows: list[list[str | float]]


@dataclass
class Frame:
    """One moment. set: what changes, by shape id. caption: a short headline; say: the sentence for a screen reader.

    stop: a moment worth resting at (the end of a step). at: the step it belongs to; run: its run, by place among the
    scene's. kind: what happens in it; act: which picture of a joined scene it is in, so that a lesson finds it. rest:
    milliseconds to stay when playing; 0 leaves it to the stage, which allows for reading.
    """

    caption: str
    say: str
    set: dict[str, dict[str, Value]] = field(default_factory=dict)
    stop: bool = False
    at: int = 0
    run: int = 0
    kind: str = ""
    act: str = ""
    rest: float = 0


@dataclass
class Question:
    """Asked before the next frames show the answer. right: the index of the option that holds; because: why."""

    text: str
    options: list[str]
    right: int
    because: str


@dataclass
class Line:
    """What a lesson says at a frame. `[word](light)` in the text belongs to all shapes with `light` among their looks:
    pointing at one lights the other. task: what to try; question: what to guess. id: its name in a link."""

    frame: int
    title: str
    text: str
    task: str = ""
    question: Question | None = None
    id: str = ""


@dataclass
class Scene:
    width: float
    height: float
    shapes: list[Shape]
    frames: list[Frame]
    bars: dict[str, Bars] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    @cached_property
    def json(self) -> str:
        """`data` as text. Whoever asks takes the scene as finished: later changes would not be seen."""
        return json.dumps(self.data())

    def data(self) -> dict[str, object]:
        """The scene as JSON data; fields at their defaults are left out."""
        return {
            "size": [self.width, self.height],
            "shapes": [slim(vars(shape), Shape) for shape in self.shapes],
            "frames": [vars(frame) for frame in self.frames],
            "bars": {name: bars.rows for name, bars in self.bars.items()},
            "lines": [asdict(line) for line in self.lines],
        }


def of_run(run: int, scene: Scene) -> Scene:
    """The scene with all its frames' steps in that run, by its place."""
    for frame in scene.frames:
        frame.run = run
    return scene


def join(acts: Mapping[str, Scene]) -> Scene:
    """One scene that plays `acts` in their order: each clears the stage first, and its shapes' names begin with it."""
    width, height = max(s.width for s in acts.values()), max(s.height for s in acts.values())
    whole = Scene(width, height, [], [])
    for act, scene in acts.items():
        gone: dict[str, dict[str, Value]] = {shape.id: {"on": False} for shape in whole.shapes}
        for number, frame in enumerate(scene.frames):
            change = {f"{act}.{name}": change for name, change in frame.set.items()}
            first = gone | {f"{act}.{s.id}": {"on": True} for s in scene.shapes if s.on} if not number else {}
            both = {name: first.get(name, {}) | change.get(name, {}) for name in first | change}
            whole.frames.append(replace(frame, set=both, act=act))
        named = {name: f"{act}.{name}" for name in scene.bars}
        for shape in scene.shapes:
            whole.shapes.append(replace(shape, id=f"{act}.{shape.id}", bars=named.get(shape.bars, ""), on=False))
        whole.bars |= {named[name]: bars for name, bars in scene.bars.items()}
    return whole


def part(scene: Scene, kept: Callable[[Frame], bool]) -> Scene:
    """The frames for which `kept` holds, with the shapes they show; what the others changed comes with the next."""
    frames: list[Frame] = []
    waiting: dict[str, dict[str, Value]] = {}
    for frame in scene.frames:
        waiting = {name: waiting.get(name, {}) | frame.set.get(name, {}) for name in waiting | frame.set}
        if kept(frame):
            frames.append(replace(frame, set=waiting))
            waiting = {}
    shown = {name for frame in frames for name, change in frame.set.items() if change.get("on")}
    shapes = [shape for shape in scene.shapes if shape.on or shape.id in shown]
    names = {shape.id for shape in shapes}
    for frame in frames:
        frame.set = {name: change for name, change in frame.set.items() if name in names}
    used = {shape.bars for shape in shapes}
    return replace(scene, shapes=shapes, frames=frames, bars={n: bars for n, bars in scene.bars.items() if n in used})


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
    wide = 0 if text.isascii() else sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * em * (len(text) + wide)


def fit_end(text: str, room: float, size: float, em: float = MONO) -> str:
    """`text` without as much of its beginning as does not fit into `room` pixels, and … for it."""
    if width(text, size, em) <= room:
        return text
    left = room - width("…", size, em)
    for start in range(len(text), 0, -1):
        left -= width(text[start - 1], size, em)
        if left < 0:
            return "…" + text[start:]
    return "…"


def fit(text: str, room: float, size: float, em: float = MONO) -> str:
    """`text`, shortened with … until it fits `room` pixels."""
    if width(text, size, em) <= room:
        return text
    while text and width(text + "…", size, em) > room:
        text = text[:-1]
    return text + "…" if text else ""
