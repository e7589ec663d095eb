"""What a guess waits for: two drafts of the same text on one axis of time, a row for every place they look ahead.

A draft pass is a box over the rows it guesses, as wide as it took, with its LM-head call behind it. Where each pass has
to wait for the last, the boxes go down like stairs; where one pass guesses all places, it is one tall box, whose layers
are strips inside it. Both kinds come out of the same lines.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from pages.pictures.scene import Frame, Scene, Shape, Value, fit
from pages.pictures.step import Say, spell
from spec_core.trace import DraftTree, Pass, Step, Trace, depths, words

WIDTH, LEFT, RIGHT = 900.0, 40.0, 150.0  # room for the places' numbers, and for the last guess
TOP, HEAD, AXIS = 4.0, 34.0, 36.0  # above the first lane, a lane's heading, the axis at the foot
ROWS = 340.0  # height all rows share
TALLEST, SLOW = 19.0, 180.0  # of a row; how many times slower than measured it plays

Change = dict[str, dict[str, Value]]


@dataclass(frozen=True)
class Box:
    """A piece of work: milliseconds since drafting began, and the places it guesses."""

    kind: str
    start: float
    ms: float
    layers: int
    number: int  # of its draft pass
    rows: range

    @property
    def end(self) -> float:
        return self.start + self.ms


def before_target(step: Step) -> list[Pass]:
    """The step's passes up to the last head call before the target; what recording cost is left out."""
    kinds = [one.kind for one in step.passes]
    until = kinds.index("target") if "target" in kinds else len(kinds)
    drafted = [i for i in range(until) if kinds[i] in ("draft", "head")]
    return [one for one in step.passes[: max(drafted, default=-1) + 1] if one.kind != "record"]


def places(tree: DraftTree, count: int) -> list[range]:
    """The places ahead each of `count` passes guesses; one whose guesses were all cut away would have come next."""
    level, found = depths(tree), list[range]()
    for number in range(count):
        own = [level[i] for i, one in enumerate(tree.passes) if one == number]
        last = found[-1].stop if found else 1
        found.append(range(min(own), max(own) + 1) if own else range(last, last + 1))
    return found


def boxes(step: Step) -> list[Box]:
    """Draft passes and head calls, one behind the other as the clock saw them."""
    passes = before_target(step)
    rows = places(step.draft, sum(one.kind == "draft" for one in passes))
    found, now, number = list[Box](), 0.0, -1
    for one in passes:
        number += one.kind == "draft"
        if one.kind != "host":
            found.append(Box(one.kind, now, one.ms, one.layers, number, rows[max(0, number)]))
        now += one.ms if found else 0.0  # the clock starts with the first pass
    return found


def drafting(step: Step) -> float:
    """Milliseconds from the start of the first draft pass until the last guess has a name."""
    return max((box.end for box in boxes(step)), default=0.0)


def likeliest(tree: DraftTree, among: Sequence[int] = ()) -> list[int]:
    """The way from below the root to the likeliest of the deepest nodes, of all or of some."""
    level = depths(tree)
    mass = [1.0] * len(level)
    for i, parent in enumerate(tree.parents[1:], 1):
        mass[i] = mass[parent] * tree.probs[i]
    node = max(among or range(len(level)), key=lambda i: (level[i], mass[i]))
    way = list[int]()
    while node > 0:
        way.insert(0, node)
        node = tree.parents[node]
    return way


def starts(trace: Trace) -> dict[int, int]:
    """Length of the text before each step with a draft → its number."""
    found, written = dict[int, int](), 0
    for number, step in enumerate(trace.steps):
        if number and len(step.draft.tokens) > 1:
            found[written] = number
        written += len(step.committed)
    return found


def meet(first: Trace, second: Trace) -> tuple[int, int]:
    """A step of each that drafts after the same text and takes its usual time; else each its own usual step."""
    own = [starts(first), starts(second)]
    usual = [median(drafting(t.steps[n]) for n in s.values()) for t, s in zip((first, second), own, strict=True)]

    def far(trace: Trace, number: int, normal: float) -> float:
        return abs(math.log(max(drafting(trace.steps[number]), 1e-6) / max(normal, 1e-6)))

    def usual_of(trace: Trace, numbers: Mapping[int, int], normal: float) -> int:
        return min(numbers.values(), key=lambda n: far(trace, n, normal))

    both = [length for length in own[0] if length in own[1]]
    if not both:
        return usual_of(first, own[0], usual[0]), usual_of(second, own[1], usual[1])
    best = min(both, key=lambda x: far(first, own[0][x], usual[0]) + far(second, own[1][x], usual[1]))
    return own[0][best], own[1][best]


def tick_step(longest: float) -> float:
    """A round number of milliseconds between two marks, so that there are four to ten of them."""
    size = 10 ** math.floor(math.log10(max(longest, 1e-3) / 4))
    return next(size * n for n in (1, 2, 5, 10) if longest / (size * n) <= 10)


class Lane:
    """One draft: where its rows lie, and what appears when one of its passes is done."""

    def __init__(self, trace: Trace, number: int, top: float, say: Say):
        self.trace, self.number, self.say, self.top = trace, number, say, top
        self.step = trace.steps[number]
        self.hue, self.title = trace.header.method.key, trace.header.method.title
        self.boxes = boxes(self.step)
        self.rows = max((box.rows.stop - 1 for box in self.boxes), default=1)
        self.passes = sum(box.kind == "draft" for box in self.boxes)
        self.heads = sum(box.kind == "head" for box in self.boxes)
        known, way = words(trace), likeliest(self.step.draft)
        level = depths(self.step.draft)
        self.guesses = {level[i]: spell(known.get(self.step.draft.tokens[i], "?")) for i in way}
        self.pitch = self.scale = 0.0

    def name(self, what: str) -> str:
        return f"{self.hue}.{what}"

    def place(self, pitch: float, scale: float) -> None:
        """pitch: pixels a row; scale: pixels a millisecond."""
        self.pitch, self.scale = pitch, scale

    @property
    def bottom(self) -> float:
        return self.top + HEAD + self.rows * self.pitch

    @property
    def end(self) -> float:
        return max((box.end for box in self.boxes), default=0.0)

    def y(self, row: int) -> float:
        return self.top + HEAD + (row - 1) * self.pitch

    def x(self, ms: float) -> float:
        return LEFT + ms * self.scale

    @property
    def counts(self) -> dict[str, Value]:
        """What a sentence may say of this draft."""
        layers = max((box.layers for box in self.boxes), default=0)
        ms = {"ms": f"{self.end:.1f}", "each": f"{self.end / self.rows:.1f}"}
        return {
            "method": self.title,
            "places": self.rows,
            "passes": self.passes,
            "heads": self.heads,
            "layers": layers,
            **ms,
        }

    def ground(self) -> list[Shape]:
        """Heading, and the numbers of the places."""
        title = Shape(self.name("title"), "text", LEFT, self.top + 14, label=self.title, look="title", hue=self.hue)
        title.size = 15
        shapes = [title]
        for row in range(1, self.rows + 1):
            number = Shape(self.name(f"n{row}"), "text", LEFT - 8, self.y(row) + self.pitch * 0.76, look="muted")
            number.label, number.size, number.anchor = f"+{row}", 11, "end"
            line = Shape(self.name(f"r{row}"), "rect", LEFT, self.y(row) + self.pitch - 0.5, WIDTH - LEFT, 0.5, "rule")
            shapes += [number, line]
        return shapes

    def ends(self) -> list[float]:
        """When each pass and its head call are done."""
        return [max(box.end for box in self.boxes if box.number == number) for number in range(self.passes)]

    def done(self, number: int) -> list[Shape]:
        """A pass, its head call, the guesses they name, and the way to the pass that waited for them."""
        own = [box for box in self.boxes if box.number == number]
        shapes = [shape for i, box in enumerate(own) for shape in self.work(f"w{number}.{i}", box)]
        last, rows = own[-1], own[-1].rows
        later = [box for box in self.boxes if box.number == number + 1]
        if later:
            shapes.append(self.way(number, last, later[0]))
        for row in rows:
            shapes.append(self.guess(row, self.x(later[0].start if later else last.end) + 9))
        return shapes

    def work(self, name: str, box: Box) -> list[Shape]:
        """A box, and the strips its layers are."""
        y, h = self.y(box.rows.start), len(box.rows) * self.pitch - 2
        x, w = self.x(box.start), max(1.0, box.ms * self.scale)
        shape = Shape(self.name(name), "rect", x, y, w, h, f"work {box.kind}", self.hue)
        values = {"ms": f"{box.ms:.1f}", "layers": box.layers, "n": box.number + 1, "places": len(box.rows)}
        shape.about = self.say(f"waiting.about.{box.kind}", values)
        strips = [
            Shape(self.name(f"{name}.l{i}"), "rect", x + w * i / box.layers, y, 1.2, h, "strip")
            for i in range(1, box.layers)
        ]
        return [shape, *strips, *self.plates(name, box, x, w, y, h)]

    def plates(self, name: str, box: Box, x: float, w: float, y: float, h: float) -> list[Shape]:
        """What a tall box is, written on it."""
        if len(box.rows) < 3 or w < 60:
            return []
        found = []
        for i, line in enumerate(("rows", "layers") if box.kind == "draft" else ("rows",)):
            text = self.say(f"waiting.{box.kind}.{line}", {"places": len(box.rows), "layers": box.layers})
            size = min(13.0, (w - 16) / max(1.0, 0.62 * wide(text)))
            plate_w = wide(text) * size * 0.6 + 14
            plate = Shape(
                self.name(f"{name}.t{i}"), "rect", x + (w - plate_w) / 2, y + h / 2 - 24 + i * 25, plate_w, 22
            )
            plate.look, plate.label, plate.size = "plate", text, size
            found.append(plate)
        return found

    def way(self, number: int, box: Box, next_: Box) -> Shape:
        """From the end of a row's work down to the pass that could not begin before."""
        x, y = self.x(box.end), self.y(box.rows.stop - 1) + self.pitch / 2
        to_x, to_y = self.x(next_.start) + 3, self.y(next_.rows.start)
        tip = f"M{to_x - 3:.1f} {to_y - 4:.1f}L{to_x:.1f} {to_y:.1f}L{to_x + 3:.1f} {to_y - 4:.1f}"
        d = f"M{x:.1f} {y:.1f}H{to_x:.1f}V{to_y:.1f}{tip}"
        return Shape(self.name(f"a{number}"), "path", 0, 0, look="arrow back waits", hue=self.hue, d=d)

    def guess(self, row: int, x: float) -> Shape:
        """The likeliest guess for a place, where it was named."""
        found = self.guesses.get(row) or self.say("waiting.cut", {})
        text = Shape(self.name(f"g{row}"), "text", x, self.y(row) + self.pitch * 0.76, look="words guess")
        text.label, text.size = fit(found, min(92.0, WIDTH - x - 4), 12), 12
        text.about = self.say("waiting.about.guess", {"token": found, "place": row})
        if row not in self.guesses:
            text.look, text.about = "muted guess", self.say("waiting.about.cut", {})
        return text

    def total(self) -> list[Shape]:
        """The sum, beside the name."""
        x = LEFT + wide(self.title) * 15 * 0.62 + 14
        said = Shape(self.name("sum"), "text", x, self.top + 14, label=self.say("waiting.sum", self.counts))
        said.look, said.size = "number total", 13
        mark = Shape(self.name("end"), "rect", self.x(self.end) - 0.75, self.top + HEAD - 8, 1.5, 1.0, "mark-end")
        mark.h = self.rows * self.pitch + 12
        return [said, mark]


def wide(text: str) -> int:
    """Letters, with CJK counted twice."""
    return sum(2 if ord(letter) > 0x2E7F else 1 for letter in text)


class Waiting:
    """Both lanes above one axis, and a frame whenever a pass is done on either."""

    def __init__(self, drafts: Sequence[tuple[Trace, int]], say: Say):
        self.say, self.lanes, self.at = say, list[Lane](), drafts[-1][1]  # the last draft's step
        top = TOP
        for trace, number in drafts:
            self.lanes.append(Lane(trace, number, top, say))
        self.longest = max(lane.end for lane in self.lanes)
        pitch = min(TALLEST, ROWS / sum(lane.rows for lane in self.lanes))
        for lane in self.lanes:
            lane.top = top
            lane.place(pitch, (WIDTH - LEFT - RIGHT) / max(self.longest, 1e-6))
            top = lane.bottom + 10
        self.foot = top + 2
        self.shapes: list[Shape] = []
        self.frames: list[Frame] = []

    def show(self, *shapes: Shape) -> Change:
        self.shapes += shapes
        return {shape.id: {"on": True} for shape in shapes}

    def frame(self, kind: str, change: Change, values: Mapping[str, Value], ms: float, rest: float = 0) -> None:
        clock: Change = {"now": {"on": True, "x": LEFT + ms * self.lanes[0].scale - 1}}
        said = self.say(f"waiting.{kind}", values)
        self.frames.append(Frame(self.say("waiting.headline", {"ms": f"{ms:.1f}"}), said, change | clock, at=self.at))
        self.frames[-1].kind, self.frames[-1].rest = kind, rest

    def axis(self) -> list[Shape]:
        """Milliseconds, with a fine line through both lanes at each mark."""
        step, shapes = tick_step(self.longest), list[Shape]()
        count = int(self.longest / step) + 1
        for i in range(count + 1):
            x = LEFT + i * step * self.lanes[0].scale
            if x > WIDTH - RIGHT + 40:  # the unit stands there
                break
            for n, lane in enumerate(self.lanes):
                top = lane.top + HEAD - 4
                shapes.append(Shape(f"x{i}.{n}", "rect", x - 0.5, top, 1, lane.bottom + 4 - top, "rule"))
            text = Shape(f"xt{i}", "text", x, self.foot + 15, label=f"{i * step:g}", look="number", anchor="middle")
            shapes.append(text)
        unit = Shape("unit", "text", WIDTH - 4, self.foot + 15, label=self.say("waiting.unit", {}), look="heading")
        unit.anchor = "end"
        return [*shapes, unit]

    def scene(self) -> Scene:
        now = Shape("now", "rect", LEFT, TOP + 20, 2, self.foot - TOP - 20, "now", layer="front")
        self.shapes.append(now)
        ground = self.show(*self.axis(), *(shape for lane in self.lanes for shape in lane.ground()))
        self.frame("begin", ground, self.values(), 0.0)
        self.play()
        self.frame("compare", self.show(*self.price()), self.values(), self.longest)
        self.frames[-1].set["now"] = {"on": False}
        self.frames[-1].stop = True
        return Scene(WIDTH, self.foot + AXIS - 12, self.shapes, self.frames)

    def play(self) -> None:
        """One frame whenever a pass has its guesses named, at the pace of the clock."""
        events = [(ms, lane, n) for lane in self.lanes for n, ms in enumerate(lane.ends())]
        events.sort(key=lambda event: event[0])
        for place, (ms, lane, number) in enumerate(events):
            later = events[place + 1][0] if place + 1 < len(events) else ms
            change = self.show(*lane.done(number))
            if number == lane.passes - 1:
                change |= self.show(*lane.total())
            rows = next(box.rows for box in lane.boxes if box.number == number)
            values = {**lane.counts, "n": number + 1, "place": rows.start, "ms": f"{ms:.1f}", "count": len(rows)}
            kind = "block" if len(rows) > 1 else "pass"
            self.frame(kind, change, values, ms, max(120.0, (later - ms) * SLOW))

    def price(self) -> list[Shape]:
        """Milliseconds a place, as bars, in the room the faster draft leaves."""
        fast = min(self.lanes, key=lambda lane: lane.end)
        x, y = fast.x(fast.end) + 122, fast.top + HEAD + 24
        if WIDTH - x < 230:
            return []
        dearest = max(lane.end / lane.rows for lane in self.lanes)
        plate = Shape("plate", "rect", x - 16, y - 22, WIDTH - x + 12, 44 + 34 * len(self.lanes), "plate edged")
        shapes = [plate, Shape("price", "text", x, y, label=self.say("waiting.price", {}), look="heading")]
        for i, lane in enumerate(self.lanes):
            top, w = y + 14 + i * 34, (WIDTH - x - 70) * lane.end / lane.rows / dearest
            bar = Shape(f"price{i}", "rect", x, top, w, 24, "work draft price", lane.hue)
            bar.about = self.say("waiting.about.price", lane.counts)
            text = Shape(
                f"pricet{i}", "text", x + w + 7, top + 18, label=str(lane.counts["each"]), look="title", size=18
            )
            text.hue = lane.hue
            shapes += [bar, text]
        return shapes

    def values(self) -> dict[str, Value]:
        """Both drafts side by side, for sentences: the first's numbers end in 1, the second's in 2."""
        found: dict[str, Value] = {}
        for place, lane in enumerate(self.lanes, 1):
            found |= {f"{key}{place}": value for key, value in lane.counts.items()}
        found["had"] = sum(ms <= self.lanes[-1].end for ms in self.lanes[0].ends())
        return found


def picture(first: Trace, second: Trace, say: Say) -> Scene:
    """The drafts of two methods after the same text, against one clock."""
    return Waiting(list(zip((first, second), meet(first, second), strict=True)), say).scene()


def numbers(first: Trace, second: Trace) -> Mapping[str, Value]:
    """What the lesson may say of that picture."""
    return Waiting(list(zip((first, second), meet(first, second), strict=True)), lambda key, values: "").values()
