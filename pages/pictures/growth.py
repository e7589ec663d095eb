"""How a dynamic tree grows: expand the likeliest nodes of a level, rank all candidates together, keep the best.

Above, a column per level: the nodes that were expanded as chips, other candidates as small squares below them.
Beneath, one ranking of all levels: a bar per candidate, as high as its whole path is likely.
"""

import math

from pages.pictures.scene import Bars, Frame, Scene, Shape, Value, fit
from pages.pictures.step import Say, spell
from spec_core.trace import DraftTree, Trace, depths, words

WIDTH, LEFT = 900.0, 4.0
TOP, ROOM = 56.0, 226.0  # upper edge of the chips, and their height in all
ROOT_W = 62.0
CELL = 9.0  # pitch of the small squares
CELLS = 38.0  # height of their field
RANK_H, LEAST = 64.0, 1e-4  # the ranking's height; a path this unlikely has no bar left

Change = dict[str, dict[str, Value]]


def path_values(tree: DraftTree) -> list[float]:
    """Per node the product of q from the root down to it: how likely the drafter takes its whole path to be."""
    values = [1.0]
    for parent, q in zip(tree.parents[1:], tree.probs[1:], strict=True):
        values.append(values[parent] * q)
    return values


def considered(tree: DraftTree, level: int) -> int:
    """How many children were looked at below the expanded nodes of the level above."""
    deep = depths(tree)
    lost = sum(one.more + len(one.tokens) for one in tree.others if deep[one.node] == level - 1)
    return lost + deep.count(level)


class Growth:
    """One step's tree, level by level, and its ranking."""

    def __init__(self, trace: Trace, number: int, say: Say):
        self.trace, self.number, self.say = trace, number, say
        self.tree = trace.steps[number].draft
        self.known, self.hue = words(trace), trace.header.method.key
        self.values, self.deep = path_values(self.tree), depths(self.tree)
        self.levels = 1 + max(deep for deep, grown in zip(self.deep, self.tree.beam, strict=True) if grown)
        self.shapes: list[Shape] = []
        self.frames: list[Frame] = []
        self.bars: dict[str, Bars] = {}
        self.chips = {level: self.chosen(level) for level in range(1, self.levels + 1)}
        most = max(map(len, self.chips.values()), default=1)
        self.column_w = (WIDTH - 2 * LEFT - ROOT_W) / max(1, self.levels)
        self.pitch = min(24.0, ROOM / most)
        self.ranked: list[int] = []

    def chosen(self, level: int) -> list[int]:
        """The nodes of a level that were expanded, likeliest path first; of the last, which never is, the best."""
        here = [i for i, deep in enumerate(self.deep) if deep == level]
        grown = [i for i in here if self.tree.beam[i]]
        width = sum(self.tree.beam[i] for i, deep in enumerate(self.deep) if deep == 1) or len(here)
        return sorted(grown or here, key=lambda i: -self.values[i])[:width]

    def others(self, level: int) -> list[int]:
        """Candidates of a level that are known by name and were not expanded."""
        return [i for i, deep in enumerate(self.deep) if deep == level and i not in self.chips[level]]

    # Places

    def column_x(self, level: int) -> float:
        return LEFT + (ROOT_W + (level - 1) * self.column_w if level else 0)

    def chip_y(self, node: int) -> float:
        if not node:
            return TOP + ROOM / 2 - self.pitch
        return TOP + self.chips[self.deep[node]].index(node) * self.pitch

    @property
    def rank_top(self) -> float:
        return TOP + ROOM + CELLS + 42

    # Shapes

    def token(self, node: int) -> str:
        token = self.tree.tokens[node]
        return spell(self.known.get(token, f"<{token}>"))

    def show(self, *shapes: Shape) -> Change:
        self.shapes += shapes
        return {shape.id: {"on": True} for shape in shapes}

    def frame(self, kind: str, change: Change, values: dict[str, Value]) -> None:
        headline = self.say("step.headline", {"n": self.number, "all": len(self.trace.steps) - 1})
        said = self.say(f"growth.{kind}", values)
        self.frames.append(Frame(headline, said, change, at=self.number, kind=kind))

    def chip(self, node: int) -> Shape:
        """A labelled node with the likelihood of its path."""
        h, w = self.pitch - 4, (ROOT_W if not node else self.column_w) - 14
        look = "node pending chosen" if node else "node root"
        hue = self.hue if node else ""
        size = min(13.0, max(9.0, h * 0.68))
        shape = Shape(f"n{node}", "rect", self.column_x(self.deep[node]), self.chip_y(node), w, h, look, hue)
        shape.size, shape.label = size, fit(self.token(node), w - (46 if node else 10), size)
        shape.note = short(self.values[node]) if node else ""
        shape.about = self.about(node)
        return shape

    def about(self, node: int) -> str:
        """What is multiplied to the value of its path."""
        if not node:
            return self.say("about.root", {"token": self.token(node)})
        factors, i = [], node
        while i:
            factors.append(short(self.tree.probs[i]))
            i = self.tree.parents[i]
        values = {"token": self.token(node), "factors": " × ".join(reversed(factors)), "path": short(self.values[node])}
        return self.say("growth.about", values)

    def edge(self, node: int) -> Shape:
        parent = self.tree.parents[node]
        w = (self.column_w if parent else ROOT_W) - 14
        x, to = self.column_x(self.deep[parent]) + w, self.column_x(self.deep[node])
        a, b = (self.chip_y(i) + (self.pitch - 4) / 2 for i in (parent, node))
        half = (to - x) / 2
        d = f"M{x:.1f} {a:.1f}C{x + half:.1f} {a:.1f} {x + half:.1f} {b:.1f} {to:.1f} {b:.1f}"
        return Shape(f"e{node}", "path", 0, 0, look="edge", hue=self.hue, d=d)

    def square(self, node: int, place: int) -> Shape:
        """A candidate too many to be named on the spot."""
        columns = int((self.column_w - 14) / CELL)
        x = self.column_x(self.deep[node]) + place % columns * CELL
        y = TOP + ROOM + 6 + place // columns * CELL
        shape = Shape(f"n{node}", "rect", x, y, CELL - 2, CELL - 2, "node pending candidate", self.hue)
        shape.about = self.about(node)
        return shape

    def bar(self, node: int) -> Shape:
        """A candidate in the ranking."""
        high = max(3.0, RANK_H * (1 - math.log10(max(self.values[node], LEAST)) / math.log10(LEAST)))
        w = self.bar_w
        shape = Shape(f"r{node}", "rect", LEFT, self.rank_top + RANK_H - high, w - 1.5, high, "bracket rank", self.hue)
        shape.about = self.about(node)
        return shape

    @property
    def bar_w(self) -> float:
        return (WIDTH - 2 * LEFT - 90) / max(1, len(self.tree.tokens) - 1)

    def rank(self, new: list[int]) -> Change:
        """The bars in their order, after `new` ones have come."""
        self.ranked = sorted([*self.ranked, *new], key=lambda i: -self.values[i])
        return {f"r{node}": {"x": round(LEFT + place * self.bar_w, 1)} for place, node in enumerate(self.ranked)}

    def headings(self) -> Change:
        names = [
            Shape("h0", "text", LEFT, TOP - 24, label=self.say("step.root", {})),
            Shape("hr", "text", LEFT, self.rank_top - 8, label=self.say("growth.ranking", {})),
        ]
        for name in names:
            name.look = "heading"
        return self.show(*names)

    def heading(self, level: int) -> list[Shape]:
        x, w = self.column_x(level), self.column_w - 14
        text = Shape(f"h{level}", "text", x, TOP - 24, label=self.say("step.pass", {"n": level}), look="heading")
        line = Shape(f"hl{level}", "rect", x, TOP - 16, w, 3, "bracket", self.hue)
        return [text, line]

    # Frames

    def scene(self) -> Scene:
        change = self.headings() | self.show(self.chip(0))
        for level in range(1, self.levels + 1):
            self.expand(level, change)
            self.choose(level)
            change = {}
        self.rerank()
        self.prune()
        return Scene(WIDTH, self.rank_top + RANK_H + 8, self.shapes, self.frames, self.bars)

    def expand(self, level: int, before: Change) -> None:
        """One pass over the chosen nodes; all candidates it names, and their bars."""
        new = self.chips[level] + self.others(level)
        squares = [self.square(node, place) for place, node in enumerate(self.others(level))]
        more = considered(self.tree, level) - len(new)
        change = before | self.show(*self.heading(level), *squares, *(self.bar(node) for node in new))
        if more:
            change |= self.show(self.rest(level, more))
        change |= {name: change.get(name, {}) | where for name, where in self.rank(new).items()}
        asked = sum(grown for grown, deep in zip(self.tree.beam, self.deep, strict=True) if grown and deep == level - 1)
        values: dict[str, Value] = {"n": level, "asked": asked, "all": considered(self.tree, level)}
        if level == 1:
            change |= self.show(*(shape for node in new for shape in (self.edge(node), self.chip(node))))
        self.frame("expand", change, values)

    def rest(self, level: int, more: int) -> Shape:
        """The candidates nobody names."""
        y = TOP + ROOM + CELLS + 12
        label = self.say("growth.more", {"n": more})
        return Shape(f"m{level}", "text", self.column_x(level), y, label=label, look="muted", size=12)

    def choose(self, level: int) -> None:
        """The likeliest of them go on to the next pass; behind the last level nobody does."""
        if level == 1:
            return
        chosen = self.chips[level]
        change = self.show(*(shape for node in chosen for shape in (self.edge(node), self.chip(node))))
        values: dict[str, Value] = {"n": level, "count": len(chosen), "all": considered(self.tree, level)}
        self.frame("choose" if level < self.levels else "last", change, values)

    def rerank(self) -> None:
        """All levels in one ranking, and the budget's line in it."""
        kept = set(self.tree.kept)
        budget = len(kept) - 1
        x = LEFT + budget * self.bar_w
        line = Shape("cut", "rect", x - 1.5, self.rank_top - 4, 2, RANK_H + 8, "now cut")
        label = Shape("cutl", "text", x + 6, self.rank_top + 8, label=self.say("growth.budget", {"n": budget}), size=12)
        label.look = "heading"
        self.frame("rerank", self.show(line, label), {"kept": budget, "all": self.all})

    @property
    def all(self) -> int:
        return sum(considered(self.tree, level) for level in range(1, self.levels + 1))

    def prune(self) -> None:
        """What stands behind the line is not sent to the target."""
        out = [i for i in range(len(self.tree.tokens)) if i not in set(self.tree.kept)]
        change: Change = {f"n{i}": {"look": "node pruned"} for i in out}
        change |= {f"r{i}": {"look": "rule"} for i in out}
        change |= {f"e{i}": {"look": "edge pruned"} for i in out if i in self.chips[self.deep[i]]}
        kept = len(self.tree.kept) - 1
        self.frame("prune", change, {"kept": kept, "all": self.all, "cut": self.all - kept})


def short(value: float) -> str:
    """A likelihood in few characters: .41, .004, <.001."""
    if value < 0.0005:
        return "<.001"
    return f"{value:.2f}".lstrip("0") if value >= 0.0095 else f"{value:.3f}".lstrip("0")


def picture(trace: Trace, number: int, say: Say) -> Scene:
    """How the tree of step `number` came about."""
    return Growth(trace, number, say).scene()
