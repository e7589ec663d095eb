"""What has to be read for a few tokens: the weights of every pass to scale, and under each pass the rows it worked on.

A MODEL, from the sizes in the header: a pass reads each weight once, however many rows go through. Above, the target
writes the tokens of one step by itself, a pass for each; below, the same tokens as they were drafted and checked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pages.pictures.scene import Frame, Scene, Shape, Value, fit, width
from pages.pictures.step import spell
from spec_core.trace import Header, Network, Step, Trace, words

Say = Callable[[str, Mapping[str, Value]], str]

WIDTH, HEIGHT = 900.0, 356.0
GAP, BOX, DOT, BETWEEN, CHIP = 8.0, 50.0, 10.0, 4.0, 28.0
WIDEST = 215.0  # of a box, where there are few
TOPS = (26.0, 208.0)  # upper edges of the two lanes' boxes
SEAM = 0.7  # between the layers of a box
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def megabytes(weights: float, header: Header, network: Network) -> float:
    return weights * (network.bytes_each or BYTES.get(header.dtype, 4)) / 1e6


def whole(network: Network) -> int:
    """Weights of one pass through all layers and the LM head."""
    return network.layers * network.layer_weights + network.head_weights


@dataclass
class Drafting:
    """A draft pass with the LM-head call behind it: the weights they read, and the rows that went in."""

    weights: int
    rows: int


def drafting(step: Step, drafter: Network | None) -> list[Drafting]:
    found: list[Drafting] = []
    if drafter is None:
        return found
    for one in step.passes:
        if one.kind == "draft":
            found.append(Drafting(one.layers * drafter.layer_weights, one.rows))
        elif one.kind == "head" and found:
            found[-1].weights += drafter.head_weights
    return found


def millions(weights: float) -> str:
    return f"{weights / 1e6:.1f}"


def numbers(trace: Trace, number: int) -> dict[str, Value]:
    """Everything this picture says in figures."""
    step, head = trace.steps[number], trace.header
    one = megabytes(whole(head.target), head, head.target)
    passes = [one.weights for one in drafting(step, head.drafter)]
    small = megabytes(sum(passes), head, head.drafter) if head.drafter else 0.0
    n = len(step.committed)
    return {
        "mb": f"{one:.0f}",
        "weights": millions(whole(head.target)),
        "layers": head.target.layers,
        "count": n,
        "alone": f"{n * one:.0f}",
        "drafts": len(passes),
        "small": f"{small:.0f}",
        "share": f"{sum(passes) / max(1, len(passes)) / whole(head.target):.0%}",
        "rows": len(step.draft.kept),
        "guesses": len(step.draft.kept) - 1,
        "both": f"{one + small:.0f}",
        "part": f"{(one + small) / (n * one):.0%}",
    }


@dataclass
class Lane:
    """Boxes of passes from left to right, each as wide as the weights it reads."""

    name: str
    top: float
    x: float = 0.0
    shapes: list[Shape] = field(default_factory=list[Shape])

    def add(self, *shapes: Shape) -> dict[str, dict[str, Value]]:
        self.shapes += shapes
        return {shape.id: {"on": True} for shape in shapes}


class Reading:
    """The scene's shapes, lane by lane."""

    def __init__(self, trace: Trace, number: int, say: Say):
        self.trace, self.say = trace, say
        self.step, self.head = trace.steps[number], trace.header
        self.number, self.known = number, words(trace)
        self.values = numbers(trace, number)
        most = max(len(self.step.committed), 2)
        self.scale = (WIDTH - GAP * most) / most / whole(self.head.target)  # pixels a weight
        self.scale = min(self.scale, WIDEST / whole(self.head.target))
        self.lanes = Lane("alone", TOPS[0]), Lane("drafted", TOPS[1])

    def token(self, i: int) -> str:
        token = self.step.committed[i]
        return spell(self.known.get(token, f"<{token}>"))

    def title(self, lane: Lane) -> Shape:
        label = self.say(f"traffic.{lane.name}", {})
        return Shape(f"{lane.name}.title", "text", 0, lane.top - 14, look="heading", label=label, size=15)

    def target_pass(self, lane: Lane, index: int, rows: int) -> dict[str, dict[str, Value]]:
        """The target's layers and LM head as one box, and a dot for every row."""
        target, start = self.head.target, lane.x
        parts = [target.layer_weights] * target.layers + [target.head_weights]
        slices = []
        for i, part in enumerate(parts):
            w = part * self.scale
            head = i == target.layers
            look = "time head weights" if head else "time target weights"
            slice_ = Shape(f"{lane.name}.{index}.{i}", "rect", lane.x, lane.top, max(w - SEAM, 0.5), BOX, look)
            slice_.about = self.about("head" if head else "layer", part, i + 1)
            slices.append(slice_)
            lane.x += w
        change = lane.add(*slices, *self.dots(lane, index, start, rows, ""))
        lane.x += GAP
        return change

    def about(self, kind: str, weights: int, i: int) -> str:
        mb = f"{megabytes(weights, self.head, self.head.target):.0f}"
        values: dict[str, Value] = {"i": i, "layers": self.head.target.layers, "weights": millions(weights), "mb": mb}
        return self.say(f"traffic.about.{kind}", values)

    def draft_pass(self, lane: Lane, index: int, one: Drafting) -> dict[str, dict[str, Value]]:
        """A drafter's pass: the same scale, the method's hue."""
        hue, start, w = self.head.method.key, lane.x, one.weights * self.scale
        box = Shape(f"{lane.name}.d{index}", "rect", start, lane.top, max(w, 2), BOX, "time draft small", hue)
        box.about = self.about("draft", one.weights, index + 1)
        change = lane.add(box, *self.dots(lane, 100 + index, start, one.rows, hue))
        lane.x += max(w, one.rows * (DOT + BETWEEN)) + GAP
        return change

    def dots(self, lane: Lane, index: int, x: float, rows: int, hue: str) -> list[Shape]:
        """One dot a row: one multiplication and one addition with every weight of the box above."""
        pitch, y = DOT + BETWEEN, lane.top + BOX + 11
        return [
            Shape(f"{lane.name}.{index}.r{i}", "dot", x + DOT / 2 + 1 + i * pitch, y, DOT, DOT, "token row", hue)
            for i in range(rows)
        ]

    def chips(self, lane: Lane, x: float, first: int, last: int) -> dict[str, dict[str, Value]]:
        """The tokens a pass gave."""
        made, held = [], len(self.step.verdict.path) - 1
        for i in range(first, last):
            room = min(width(self.token(i), 15) + 16, 150)
            drafted = lane.name == "drafted" and i < held
            look = "chip drafted written" if drafted else "chip bonus written"
            chip = Shape(f"{lane.name}.t{i}", "rect", x, lane.top + BOX + 24, room, CHIP, look)
            chip.hue = self.head.method.key if drafted else ""
            chip.label, chip.size = fit(self.token(i), room - 12, 15), 15
            made.append(chip)
            x += room + 4
        return lane.add(*made)

    def total(self, lane: Lane) -> dict[str, dict[str, Value]]:
        label = self.say(f"traffic.total.{lane.name}", self.values)
        y = lane.top + BOX + CHIP + 46
        return lane.add(Shape(f"{lane.name}.total", "text", 0, y, look="number total", label=label, size=15))

    def frame(self, kind: str, change: dict[str, dict[str, Value]], stop: bool = False) -> Frame:
        values = self.values
        return Frame(
            self.say("traffic.headline", values),
            self.say(f"traffic.say.{kind}", values),
            change,
            stop,
            at=self.number,
            kind=kind,
        )

    def alone(self) -> list[Frame]:
        """The step's tokens, one pass each."""
        lane, frames = self.lanes[0], list[Frame]()
        for i in range(len(self.step.committed)):
            x = lane.x
            change = lane.add(self.title(lane)) if not i else {}
            change |= self.target_pass(lane, i, 1)
            frames.append(self.frame("again" if i else "read", change | self.chips(lane, x, i, i + 1)))
        frames[-1].set |= self.total(lane)
        return frames

    def drafted(self) -> list[Frame]:
        """The draft's passes, then the target's one, then what came of it."""
        lane = self.lanes[1]
        change = lane.add(self.title(lane))
        for i, one in enumerate(drafting(self.step, self.head.drafter)):
            change |= self.draft_pass(lane, i, one)
        frames, x = [self.frame("guess", change)], lane.x
        frames.append(self.frame("check", self.target_pass(lane, 0, len(self.step.draft.kept))))
        change = self.chips(lane, x, 0, len(self.step.committed)) | self.total(lane)
        return [*frames, self.frame("total", change, stop=True)]

    def scene(self) -> Scene:
        frames = self.alone() + self.drafted()
        return Scene(WIDTH, HEIGHT, [shape for lane in self.lanes for shape in lane.shapes], frames)


def picture(trace: Trace, number: int, say: Say) -> Scene:
    """The tokens of step `number`, written alone and drafted."""
    return Reading(trace, number, say).scene()
