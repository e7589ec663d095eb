"""One decode, moment by moment: the tape of sure text, the draft growing pass by pass, its trial, the time it took.

A tree and a block come out of the same lines: a column per depth, a heading per pass. Many headings in a row are
passes that waited for each other; one heading over many columns is one pass.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pages.pictures.scene import Bars, Frame, Scene, Shape, Value, fit, width
from spec_core.trace import Losers, Step, Trace, Wanted, Word, accepted, depths, words

Say = Callable[[str, Mapping[str, Value]], str]

WIDTH = 900.0
LEFT, RIGHT = 4.0, 4.0
TAPE_Y, CHIP = 4.0, 28.0
DRAFT_TOP, LEAST, MOST = 76.0, 150.0, 270.0  # the draft's upper edge, and what height it may have
STAR_H, TIME_H = 30.0, 22.0
GAP = 4.0
TALL, SHORT = 34.0, 13.0  # node heights: with room to spare, and the least that can be read
LOST = 3  # losers drawn below a lone guess


def spell(word: Word) -> str:
    """A token as a chip shows it: its text, spaces made visible, or its bytes where it is half a character."""
    if not isinstance(word, str):
        return "<" + " ".join(f"{b:02X}" for b in word) + ">"
    text = word.replace("\n", "⏎").replace("\t", "⇥")
    return text.strip() or "␣" * len(text)


@dataclass(frozen=True)
class Place:
    x: float
    y: float
    w: float
    h: float

    @property
    def middle(self) -> float:
        return self.y + self.h / 2


@dataclass(frozen=True)
class Heights:
    """How far down the parts of a picture reach: the draft, the bonus below a full column, the timeline, all of it."""

    draft: float

    @property
    def star(self) -> float:
        return self.draft + 4

    @property
    def time(self) -> float:
        return self.draft + 66

    @property
    def all(self) -> float:
        return self.draft + 94


def heights(trace: Trace) -> Heights:
    """As much height as the bushiest draft of the run asks for, the same in every step."""
    columns = [column for step in trace.steps[1:] for column in by_depth(step)]
    needed = max(map(len, columns), default=0) * (TALL + GAP) + TALL
    return Heights(DRAFT_TOP + min(max(needed, LEAST), MOST))


def by_depth(step: Step) -> list[list[tuple[int, int]]]:
    """Per depth (node, -1) for guesses and (parent, rank) for losers; losers only beside a lone guess of one parent."""
    tree, level = step.draft, depths(step.draft)
    lost = {loser.node: loser for loser in tree.others}
    columns: list[list[tuple[int, int]]] = [[(0, -1)]]
    for depth in range(1, max(level) + 1):
        parents = [i for i, d in enumerate(level) if d == depth - 1]
        found: list[tuple[int, int]] = []
        for parent in parents:
            own = [i for i, up in enumerate(tree.parents) if up == parent]
            found += [(node, -1) for node in own]
            if len(parents) == 1 and len(own) <= 1 and parent in lost:
                found += [(parent, rank) for rank in range(min(LOST, len(lost[parent].tokens)))]
        columns.append(found)
    return columns


class Columns:
    """Where the nodes of one draft stand: a column per depth, siblings together, children beside their parents.

    A depth with more nodes than fit below each other takes several columns, so that every node can be read.
    """

    def __init__(self, step: Step, bottom: float):
        self.tree, self.bottom = step.draft, bottom
        self.lost = {lost.node: lost for lost in self.tree.others}
        room, pitch = bottom - DRAFT_TOP, SHORT + GAP
        levels = by_depth(step)
        self.levels = len(levels) - 1
        self.columns = [part for items in levels for part in split(items, int(room / pitch))]
        self.column_w = min(150.0, (WIDTH - LEFT - RIGHT) / len(self.columns))
        self.node_w = self.column_w - (18 if self.column_w > 70 else 8)
        self.roomy = self.node_w > 96  # wide enough for q beside the token
        self.reserved = 52.0 if self.roomy else 20.0  # for q and the mark of its fate
        self.h = min(TALL, room / max(map(len, self.columns)) - GAP)
        self.places: dict[tuple[int, int], Place] = {}
        for index, column in enumerate(self.columns):
            self.stack(index, column)

    def stack(self, index: int, column: list[tuple[int, int]]) -> None:
        """Wish for the parent's height, then push apart, then move what hangs below the edge up again."""
        tops: list[float] = []
        for node, rank in column:
            wish = self.wish(node) if rank < 0 else 0
            tops.append(max(wish, tops[-1] + self.h + GAP) if tops else wish)
        bottom = self.bottom
        for i in range(len(tops) - 1, -1, -1):
            tops[i] = min(tops[i], bottom - self.h)
            bottom = tops[i] - GAP
        top = DRAFT_TOP
        for item, y in zip(column, tops, strict=True):
            self.places[item] = Place(LEFT + index * self.column_w, max(y, top), self.node_w, self.h)
            top = max(y, top) + self.h + GAP

    def wish(self, node: int) -> float:
        """The root stands in the middle of a bushy draft and on top of a chain; children start beside their parent."""
        if node == 0:
            bushy = max(map(len, self.columns)) > LOST + 1
            return (DRAFT_TOP + self.bottom) / 2 - self.h if bushy else DRAFT_TOP + 24
        above = self.places[(self.tree.parents[node], -1)]
        own = sum(parent == self.tree.parents[node] for parent in self.tree.parents)
        return above.y - (self.h + GAP) * (own - 1) / 2


def split(items: list[tuple[int, int]], most: int) -> list[list[tuple[int, int]]]:
    """One column, or as many equal ones as it takes."""
    count = max(1, -(-len(items) // most))
    size = -(-len(items) // count)
    return [items[i : i + size] for i in range(0, len(items), size)] or [[]]


class Director:
    """Turns one trace into shapes and frames, a step at a time. What was shown last is hidden when it is over."""

    def __init__(self, trace: Trace, say: Say):
        self.trace, self.say = trace, say
        self.known = words(trace)
        self.hue = trace.header.method.key
        self.shapes: list[Shape] = []
        self.frames: list[Frame] = []
        self.bars: dict[str, Bars] = {}
        self.alive: set[str] = set()
        self.tape: list[str] = []
        self.heights = heights(trace)
        self.slowest = max((step.ms for step in trace.steps[1:]), default=1.0) or 1.0

    def scene(self) -> Scene:
        for number, step in enumerate(self.trace.steps):
            if number:
                self.draft(number, step)
            self.commit(number, step)
        return Scene(WIDTH, self.heights.all, self.shapes, self.frames, self.bars)

    def token(self, token: int) -> str:
        return spell(self.known.get(token, f"<{token}>"))

    def show(self, *shapes: Shape) -> dict[str, dict[str, Value]]:
        self.shapes += shapes
        self.alive |= {shape.id for shape in shapes}
        return {shape.id: {"on": True} for shape in shapes}

    def frame(self, number: int, key: str, values: Mapping[str, Value], change: dict[str, dict[str, Value]]) -> Frame:
        caption = self.say(f"step.{key}", values)
        headline = self.say("step.headline", {"n": number, "all": len(self.trace.steps) - 1})
        made = Frame(headline, caption, change, at=number, kind=key.split(".")[0])
        self.frames.append(made)
        return made

    def draft(self, number: int, step: Step) -> None:
        """Clear the last step, put the root up, then the passes in turn, the pruning, the target and its verdict."""
        change: dict[str, dict[str, Value]] = {name: {"on": False} for name in self.alive}
        self.alive = set()
        columns = Columns(step, self.heights.draft)
        act = Act(self, number, step, columns)
        change |= act.raise_root()
        if not step.draft.tokens[1:]:
            self.frame(number, "nothing", {"token": self.token(step.draft.tokens[0])}, change)
        for index in range(max(step.draft.passes) + 1):
            change |= act.raise_pass(index)
            self.frame(number, *act.about_pass(index), change)
            change = {}
        act.prune()
        act.score()
        act.judge()

    def commit(self, number: int, step: Step) -> None:
        """The tape grows by what was sure, and the step is over."""
        held = accepted(step)
        change: dict[str, dict[str, Value]] = {}
        for place, token in enumerate(step.committed):
            name = f"t{len(self.tape)}"
            own = place < held
            look = "chip drafted" if own else "chip bonus"
            size = 15.0
            label = self.token(token)
            chip = Shape(name, "rect", 0, TAPE_Y, width(label, size) + 14, CHIP, look, self.hue if own else "", label)
            chip.size, chip.about = size, self.say("chip.drafted" if own else "chip.bonus", {"n": number})
            self.shapes.append(chip)
            self.tape.append(name)
        change |= self.slide()
        values = {"count": len(step.committed), "accepted": held, "text": self.joined(step.committed)}
        self.frame(number, "commit" if number else "prefill", values, change).stop = True

    def joined(self, tokens: list[int]) -> str:
        return " ".join(self.token(token) for token in tokens)

    def slide(self) -> dict[str, dict[str, Value]]:
        """Lay the tape out from its right end, so that the newest tokens are always in view."""
        by_name = {shape.id: shape for shape in self.shapes if shape.id in self.tape}
        total = sum(by_name[name].w + 4 for name in self.tape)
        x = LEFT + min(0.0, WIDTH - LEFT - RIGHT - total)
        change: dict[str, dict[str, Value]] = {}
        for name in self.tape:
            seen = x >= LEFT - 1
            change[name] = {"x": round(x, 1), "on": seen}
            x += by_name[name].w + 4
        return change


class Act:
    """One step's shapes, named s<step>.<what>; the director keeps count of what is on stage."""

    def __init__(self, director: Director, number: int, step: Step, columns: Columns):
        self.director, self.number, self.step, self.columns = director, number, step, columns
        self.heights = director.heights
        self.tree, self.verdict = step.draft, step.verdict
        self.say = director.say
        self.p = dict(zip(self.tree.kept, self.verdict.p, strict=True))
        self.wanted = {wanted.node: wanted for wanted in self.verdict.wanted}
        self.timeline = timeline(step, WIDTH - LEFT - RIGHT, director.slowest)
        self.begun = 0

    def name(self, what: str) -> str:
        return f"s{self.number}.{what}"

    def node(self, i: int) -> str:
        return self.name(f"n{i}")

    def raise_root(self) -> dict[str, dict[str, Value]]:
        root = self.box(0, "node root")
        root.note, root.hue = "", ""
        title = Shape(
            self.name("h-root"), "text", root.x, DRAFT_TOP - 14, label=self.say("step.root", {}), look="heading"
        )
        line = Shape(
            self.name("time"), "text", LEFT, self.heights.time - 8, label=self.say("step.time", {}), look="heading"
        )
        return self.director.show(root, title, line)

    def box(self, i: int, look: str) -> Shape:
        """A node: its token, q in the corner, and its fate once it has one."""
        place = self.columns.places[(i, -1)]
        size = min(14.0, max(10.0, place.h * 0.7))
        q = f"{self.tree.probs[i]:.2f}".lstrip("0") if i else ""
        label = fit(self.director.token(self.tree.tokens[i]), place.w - self.columns.reserved, size)
        shape = Shape(self.node(i), "rect", place.x, place.y, place.w, place.h, look, self.director.hue, label)
        shape.size, shape.note = size, q if self.columns.roomy else ""
        shape.about, shape.bars = self.about(i), self.chart(self.tree.parents[i]) if i else ""
        return shape

    def about(self, i: int) -> str:
        token = self.director.known.get(self.tree.tokens[i], "")
        text = repr(token) if isinstance(token, str) else spell(token)
        if not i:
            return self.say("about.root", {"token": text})
        p = f"{self.p[i]:.3f}" if i in self.p else self.say("about.unasked", {})
        values = {"token": text, "pass": self.tree.passes[i] + 1, "q": f"{self.tree.probs[i]:.3f}", "p": p}
        return self.say("about.node", values)

    def chart(self, parent: int) -> str:
        """The bars behind a node: what drafter and target each gave to the tokens at that place."""
        name = self.name(f"b{parent}")
        if name not in self.director.bars:
            self.director.bars[name] = self.compare(parent)
        return name

    def compare(self, parent: int) -> Bars:
        q = {self.tree.tokens[i]: self.tree.probs[i] for i, up in enumerate(self.tree.parents) if up == parent}
        lost = self.columns.lost.get(parent, Losers(parent, [], [], 0))
        q |= dict(zip(lost.tokens, lost.probs, strict=True))
        wanted = self.wanted.get(parent, Wanted(parent, [], [], 0))
        p = dict(zip(wanted.tokens, wanted.probs, strict=True))
        p |= {self.tree.tokens[i]: self.p[i] for i in self.p if self.tree.parents[i] == parent and i}
        best = sorted({*p, *q}, key=lambda token: -(p.get(token, 0) + q.get(token, 0)))[:6]
        return Bars([[self.director.token(token), p.get(token, -1.0), q.get(token, -1.0)] for token in best])

    def edge(self, i: int, look: str) -> Shape:
        a, b = self.columns.places[(self.tree.parents[i], -1)], self.columns.places[(i, -1)]
        x, bend = a.x + a.w, (b.x - a.x - a.w) / 2
        from_, to = f"{a.middle:.1f}", f"{b.middle:.1f}"
        d = f"M{x:.1f} {from_}C{x + bend:.1f} {from_} {x + bend:.1f} {to} {b.x:.1f} {to}"
        return Shape(self.name(f"e{i}"), "path", 0, 0, look=look, hue=self.director.hue, d=d)

    def raise_pass(self, index: int) -> dict[str, dict[str, Value]]:
        """What one draft pass guessed: its nodes with their losers, a heading over their columns, its time."""
        nodes = [i for i, p in enumerate(self.tree.passes) if p == index]
        shapes = [shape for i in nodes for shape in (self.edge(i, "edge"), self.box(i, "node pending"))]
        shapes += [loser for i in nodes for loser in self.losers(self.tree.parents[i])]
        if nodes:
            shapes += self.heading(index, nodes)
        return self.director.show(*shapes) | self.pass_time(index)

    def losers(self, parent: int) -> list[Shape]:
        lost = self.columns.lost.get(parent)
        found = []
        for rank in range(LOST if lost else 0):
            place = self.columns.places.get((parent, rank))
            name = self.name(f"l{parent}.{rank}")
            if lost is None or place is None or any(name == shape.id for shape in self.director.shapes[-40:]):
                continue
            size = min(13.0, max(10.0, place.h * 0.7))
            label = fit(self.director.token(lost.tokens[rank]), place.w - self.columns.reserved, size)
            shape = Shape(name, "rect", place.x, place.y, place.w, place.h, "node lost", self.director.hue, label)
            shape.size = size
            shape.note = f"{lost.probs[rank]:.2f}".lstrip("0") if self.columns.roomy else ""
            shape.bars = self.chart(parent)
            found.append(shape)
        return found

    def heading(self, index: int, nodes: list[int]) -> list[Shape]:
        """A bracket over all columns this pass filled."""
        lefts = [self.columns.places[(i, -1)].x for i in nodes]
        x, end = min(lefts), max(lefts) + self.columns.node_w
        label = fit(self.say("step.pass", {"n": index + 1}), max(end - x, 60), 13)
        text = Shape(self.name(f"h{index}"), "text", (x + end) / 2, DRAFT_TOP - 20, label=label, look="heading")
        text.anchor = "middle"
        line = Shape(self.name(f"hl{index}"), "rect", x, DRAFT_TOP - 12, end - x, 3, "bracket", self.director.hue)
        return [text, line]

    def pass_time(self, index: int) -> dict[str, dict[str, Value]]:
        """Timeline bars up to and including draft pass `index` and its LM-head call."""
        shown, seen = [], -1
        for bar in self.timeline[self.begun :]:
            if bar.kind == "target" or (bar.kind == "draft" and seen == index):
                break
            seen = index if bar.kind == "draft" else seen
            shown.append(bar)
        self.begun += len(shown)
        return self.director.show(*(self.tick(bar) for bar in shown))

    def tick(self, bar: "Bar") -> Shape:
        hue = self.director.hue if bar.kind in ("draft", "head") else ""
        y, look = self.heights.time, f"time {bar.kind}"
        shape = Shape(self.name(f"p{bar.index}"), "rect", LEFT + bar.x, y, bar.w, TIME_H, look, hue)
        shape.about = self.say(f"pass.{bar.kind}", {"ms": f"{bar.ms:.1f}", "rows": bar.rows, "layers": bar.layers})
        return shape

    def about_pass(self, index: int) -> tuple[str, dict[str, Value]]:
        nodes = [i for i, p in enumerate(self.tree.passes) if p == index]
        best = max(nodes, key=lambda i: self.tree.probs[i], default=0)
        values: dict[str, Value] = {
            "n": index + 1,
            "count": len(nodes),
            "best": self.director.token(self.tree.tokens[best]),
        }
        only = max(self.tree.passes) == 0
        return ("block" if only and self.columns.levels > 1 else "grow"), values

    def prune(self) -> None:
        dropped = sorted(set(range(len(self.tree.tokens))) - set(self.tree.kept))
        if not dropped:
            return
        looks: dict[str, dict[str, Value]] = {self.node(i): {"look": "node pruned"} for i in dropped}
        looks |= {self.name(f"e{i}"): {"look": "edge pruned"} for i in dropped}
        more = sum(lost.more + len(lost.tokens) for lost in self.tree.others)
        values = {"kept": len(self.tree.kept) - 1, "grown": len(self.tree.tokens) - 1 + more}
        self.director.frame(self.number, "prune", values, looks)

    def score(self) -> None:
        """The target reads every kept node in one pass."""
        bars = self.director.show(*(self.tick(bar) for bar in self.timeline[self.begun :]))
        end = self.timeline[-1] if self.timeline else None
        if end:
            label = f"{self.step.ms:.0f} ms"
            x = min(LEFT + end.x + end.w + 8, WIDTH - RIGHT - width(label, 13))
            y = self.heights.time + (16 if LEFT + end.x + end.w + 8 == x else -8)
            bars |= self.director.show(Shape(self.name("ms"), "text", x, y, label=label, look="number"))
        looks: dict[str, dict[str, Value]] = {self.node(i): {"look": "node scored"} for i in self.tree.kept[1:]}
        self.director.frame(self.number, "target", {"rows": len(self.tree.kept)}, bars | looks)

    def judge(self) -> None:
        """One frame per question to the target: the guess holds, or the bonus takes its place."""
        for asked in self.verdict.decisions:
            token = self.tree.tokens[asked.child] if asked.child >= 0 else asked.drawn
            values: dict[str, Value] = {
                "p": f"{asked.p:.2f}",
                "q": f"{asked.q:.2f}",
                "token": self.director.token(token or 0),
            }
            values |= {"bonus": self.director.token(self.verdict.bonus), "u": f"{asked.u or 0:.2f}"}
            if asked.accepted:
                change: dict[str, dict[str, Value]] = {
                    self.node(asked.child): {"look": "node accepted", "mark": "✓"},
                    self.name(f"e{asked.child}"): {"look": "edge accepted"},
                }
                self.director.frame(self.number, f"accept.{asked.rule}", values, change)
            else:
                self.fail(asked.node, values, asked.rule)

    def fail(self, node: int, values: dict[str, Value], rule: str) -> None:
        """The path ends at `node`: its children are rejected, and all below them with them."""
        path = set(self.verdict.path)
        out = [i for i in self.tree.kept[1:] if i not in path]
        tested = [i for i in out if self.tree.parents[i] == node]
        change: dict[str, dict[str, Value]] = {self.node(i): {"look": "node left"} for i in out}
        change |= {self.node(i): {"look": "node rejected", "mark": "✕"} for i in tested}
        change |= self.star(node, bool(tested))
        key = "reject" if tested else "end"
        self.director.frame(self.number, f"{key}.{rule}" if tested else "end", values, change)

    def beside(self, node: int, above: Place) -> float:
        """Where a further child of `node` would stand."""
        below = [i for i, parent in enumerate(self.tree.parents) if parent == node]
        return min((self.columns.places[(i, -1)].x for i in below), default=above.x + self.columns.column_w)

    def star(self, node: int, tested: bool) -> dict[str, dict[str, Value]]:
        """The target's own token, beside the place where the path ended."""
        above = self.columns.places[(node, -1)]
        label = self.director.token(self.verdict.bonus)
        w = min(max(width(label, 14) + 40, 60), 150.0)
        x = min(self.beside(node, above), WIDTH - RIGHT - w)
        taken = [p for p in self.columns.places.values() if p.x < x + w and x < p.x + p.w]
        y = min(max((p.y + p.h for p in taken), default=above.y - 8) + 8, self.heights.star)
        shape = Shape(
            self.name("bonus"), "rect", x, y, w, STAR_H, "node bonus", "", fit(label, w - 34, 14), mark="★", size=14
        )
        outside = self.verdict.bonus in self.step.beyond
        shape.about = self.say("beyond.about" if outside else "about.bonus", {"token": label, "n": self.number})
        shape.bars = self.chart(node)
        return self.director.show(shape)


@dataclass(frozen=True)
class Bar:
    """One pass on the time axis, in pixels."""

    index: int
    kind: str
    x: float
    w: float
    ms: float
    rows: int
    layers: int


def timeline(step: Step, room: float, slowest: float) -> list[Bar]:
    """The step's passes to scale, one behind the other; what recording cost is left out, and the rest moves up."""
    found, x = [], 0.0
    for index, one in enumerate(step.passes):
        if one.kind == "record":
            continue
        w = one.ms / slowest * room
        found.append(Bar(index, one.kind, round(x, 2), round(max(w, 0.5), 2), one.ms, one.rows, one.layers))
        x += w
    return found


def picture(trace: Trace, say: Say) -> Scene:
    """The scene of a whole decode."""
    return Director(trace, say).scene()
