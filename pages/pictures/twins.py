"""Two drafts of the same place in the same text, side by side: what the one placed here, the other placed there."""

from collections.abc import Sequence
from dataclasses import dataclass

from pages.pictures.growth import path_values, short
from pages.pictures.scene import Frame, Scene, Shape, Value, fit
from pages.pictures.step import Say, spell
from spec_core.trace import DraftTree, Step, Trace, accepted, depths, ids, tau, text_of, words

WIDTH, LEFT, GUTTER = 900.0, 4.0, 28.0
TOP, ROOM = 74.0, 280.0
SOME = 3  # tokens of new text that should stand before a place
READABLE = 9.0  # the least height of a box that can hold a word
CONTEXT = 12  # tokens of the text shown above

Change = dict[str, dict[str, Value]]


@dataclass(frozen=True)
class Place:
    """A position in the text at which both runs began a step: tokens before it, and the two steps' numbers."""

    position: int
    steps: tuple[int, int]


def starts(trace: Trace) -> dict[int, int]:
    """Position in the new text → the number of the step that began there."""
    found, position = {}, 0
    for number, step in enumerate(trace.steps):
        if number and len(step.draft.tokens) > 1:
            found[position] = number
        position += len(step.committed)
    return found


def places(pair: Sequence[Trace]) -> list[Place]:
    """Where both began a step with the same text behind them."""
    one, two = (starts(trace) for trace in pair)
    texts = [ids(trace) for trace in pair]
    common = [at for at in sorted(one.keys() & two.keys()) if texts[0][:at] == texts[1][:at]]
    return [Place(at, (one[at], two[at])) for at in common]


def reach(tree: DraftTree) -> float:
    """Mean depth of the tokens sent to the target: large where the tree is long, small where it is broad."""
    deep = depths(tree)
    kept = [deep[i] for i in tree.kept[1:]]
    return sum(kept) / len(kept) if kept else 0.0


def extremes(pair: Sequence[Trace]) -> tuple[Place, Place]:
    """The places where the second run's tree is longest and broadest, once there is some text."""
    every = places(pair)
    found = [place for place in every if place.position > SOME] or every

    def length(place: Place) -> float:
        return reach(draft(pair[1], place.steps[1]))

    return max(found, key=length), min(found, key=length)


def draft(trace: Trace, number: int) -> DraftTree:
    return trace.steps[number].draft


@dataclass(frozen=True)
class Spot:
    x: float
    y: float
    w: float
    h: float


def levels(tree: DraftTree) -> int:
    """Columns its kept nodes take, the root's among them."""
    deep = depths(tree)
    return 1 + max(deep[i] for i in tree.kept)


def layout(tree: DraftTree, left: float, w: float) -> dict[int, Spot]:
    """Kept nodes in columns of width w by depth, children beside each other, every column centred."""
    deep = depths(tree)
    columns: list[list[int]] = [[] for _ in range(levels(tree))]
    order = {0: 0}
    for i in tree.kept:
        columns[deep[i]].append(i)
    for level in columns[1:]:
        level.sort(key=lambda i: (order[tree.parents[i]], -tree.probs[i]))
        order |= {node: place for place, node in enumerate(level)}
    pitch = min(24.0, ROOM / max(map(len, columns)))
    spots = {}
    for depth, level in enumerate(columns):
        top = TOP + (ROOM - len(level) * pitch) / 2
        for place, node in enumerate(level):
            spots[node] = Spot(left + depth * w, top + place * pitch, w - 12, pitch - 4)
    return spots


class Half:
    """One of the two drafts: its shapes, and what becomes of them."""

    def __init__(self, trace: Trace, number: int, side: int, columns: int, name: str, say: Say):
        self.trace, self.step, self.say, self.name = trace, trace.steps[number], say, name
        self.tree, self.hue, self.known = self.step.draft, trace.header.method.key, words(trace)
        self.values = path_values(self.tree)
        width = (WIDTH - 2 * LEFT - GUTTER) / 2
        self.left = LEFT + side * (width + GUTTER)
        self.spots = layout(self.tree, self.left, width / columns)

    def token(self, token: int) -> str:
        return spell(self.known.get(token, f"<{token}>"))

    def shapes(self) -> list[Shape]:
        return [*self.title(), *map(self.edge, self.tree.kept[1:]), *map(self.chip, self.tree.kept)]

    def title(self) -> list[Shape]:
        card = self.trace.header.method
        label = self.say("lane.title", {"key": card.key, "title": card.title})
        deep = depths(self.tree)
        values: dict[str, Value] = {"n": len(self.tree.kept) - 1, "deep": max(deep[i] for i in self.tree.kept)}
        size = self.say("twins.size", {**values, "first": sum(deep[i] == 1 for i in self.tree.kept)})
        name = Shape(f"{self.name}.title", "text", self.left, TOP - 32, look="title", hue=self.hue, label=label)
        return [name, Shape(f"{self.name}.size", "text", self.left, TOP - 14, look="muted", label=size, size=12)]

    def chip(self, node: int) -> Shape:
        spot, size = self.spots[node], min(12.0, self.spots[node].h * 0.7)
        look, hue = ("node pending", self.hue) if node else ("node root", "")
        shape = Shape(f"{self.name}.n{node}", "rect", spot.x, spot.y, spot.w, spot.h, look, hue)
        label = fit(self.token(self.tree.tokens[node]), spot.w - 18, size)
        shape.label, shape.size = (label if spot.h >= READABLE else ""), size
        values = {"token": self.token(self.tree.tokens[node]), "q": short(self.tree.probs[node])}
        shape.about = self.say("twins.about", {**values, "path": short(self.values[node])})
        return shape

    def edge(self, node: int) -> Shape:
        a, b = self.spots[self.tree.parents[node]], self.spots[node]
        x, y, to = a.x + a.w, a.y + a.h / 2, b.y + b.h / 2
        half = (b.x - x) / 2
        d = f"M{x:.1f} {y:.1f}C{x + half:.1f} {y:.1f} {x + half:.1f} {to:.1f} {b.x:.1f} {to:.1f}"
        return Shape(f"{self.name}.e{node}", "path", 0, 0, look="edge", hue=self.hue, d=d)

    def star(self) -> Shape:
        """The target's own token, below the draft."""
        label = self.token(self.step.verdict.bonus)
        text = self.say("twins.held", {"n": accepted(self.step), "bonus": label})
        shape = Shape(f"{self.name}.star", "text", self.left, TOP + ROOM + 20, look="heading", label=text)
        return shape

    def judged(self) -> Change:
        """The looks of a step that is over."""
        path = set(self.step.verdict.path)
        tested = {i for i in self.tree.kept[1:] if self.tree.parents[i] == self.step.verdict.path[-1]}
        change: Change = {}
        for i in self.tree.kept[1:]:
            look = "accepted" if i in path else "rejected" if i in tested else "left"
            change[f"{self.name}.n{i}"] = {"look": f"node {look}", "mark": "✓" if i in path else ""}
            if i in path:
                change[f"{self.name}.e{i}"] = {"look": "edge accepted"}
        return change


class Twins:
    """Both drafts at several places, one place after another."""

    def __init__(self, pair: Sequence[Trace], say: Say):
        self.pair, self.say = pair, say
        self.shapes: list[Shape] = []
        self.frames: list[Frame] = []
        self.alive: list[str] = []

    def show(self, shapes: list[Shape]) -> Change:
        self.shapes += shapes
        self.alive += [shape.id for shape in shapes]
        return {shape.id: {"on": True} for shape in shapes}

    def place(self, kind: str, place: Place) -> None:
        """Two frames: the drafts, and what the target said to them."""
        change: Change = {name: {"on": False} for name in self.alive}
        self.alive = []
        columns = max(levels(draft(trace, number)) for trace, number in zip(self.pair, place.steps, strict=True))
        halves = [
            Half(trace, number, side, columns, f"{kind}{side}", self.say)
            for side, (trace, number) in enumerate(zip(self.pair, place.steps, strict=True))
        ]
        change |= self.show([self.text(kind, place), *(shape for half in halves for shape in half.shapes())])
        self.frame(kind, change, halves, place)
        judged = self.show([half.star() for half in halves])
        for half in halves:
            judged |= half.judged()
        self.frame(f"{kind}end", judged, halves, place)

    def text(self, kind: str, place: Place) -> Shape:
        """The text both stand behind."""
        before = ids(self.pair[0])[: place.position]
        said = text_of(before[-CONTEXT:], words(self.pair[0])).replace("\n", " ⏎ ").strip()
        label = fit(f"… {said}", WIDTH - 2 * LEFT, 13)
        return Shape(f"{kind}.text", "text", LEFT, 18, look="words", label=label)

    def frame(self, kind: str, change: Change, halves: list["Half"], place: Place) -> None:
        steps: list[Step] = [half.step for half in halves]
        number = place.steps[0]
        held: dict[str, Value] = {"one": accepted(steps[0]), "two": accepted(steps[1])}
        headline = self.say("step.headline", {"n": number, "all": len(self.pair[0].steps) - 1})
        self.frames.append(Frame(headline, self.say(f"twins.{kind}", held), change, at=number, kind=kind))

    def scene(self) -> Scene:
        for kind, place in zip(("long", "broad"), extremes(self.pair), strict=True):
            self.place(kind, place)
        return Scene(WIDTH, TOP + ROOM + 30, self.shapes, self.frames)


def picture(pair: Sequence[Trace], say: Say) -> Scene:
    """Two runs of one prompt, where the second one's tree is longest and where it is broadest."""
    return Twins(pair, say).scene()


def compared(pair: Sequence[Trace]) -> dict[str, Value]:
    """What sentences may say of both runs: tokens and passes of a draft, and tokens won per step over the text."""
    found: dict[str, Value] = {}
    for name, trace in zip(("one", "two"), pair, strict=True):
        step = trace.steps[places(pair)[0].steps[name == "two"]]
        kinds = [one.kind for one in step.passes]
        found |= {f"{name}_nodes": len(step.draft.kept) - 1, f"{name}_passes": kinds.count("draft")}
        found |= {f"{name}_tau": f"{tau(trace):.2f}"}
    return found
