"""Who may look at whom: the mask of a tree and the mask of a block, side by side. A row looks, a column is looked at.

In a tree each guess sees the text and its own branch. In a block every slot sees every other, both ways, while it is
drafted; when the target checks the block it is a chain again, and each guess sees only what stands before it.
"""

from collections.abc import Mapping, Sequence

from pages.pictures.scene import Frame, Scene, Shape, Value, fit
from pages.pictures.step import Say, spell
from pages.pictures.waiting import likeliest, meet
from spec_core.trace import DraftTree, Trace, words

WIDTH, TOP, SHOWN = 900.0, 60.0, 16  # rows shown of a draft at most, the root's first
LABEL, TEXT = 92.0, 34.0  # a row's name, and the one column that stands for all the text before
GAP, CELL = 30.0, 17.6

Change = dict[str, dict[str, Value]]
Rule = Mapping[tuple[int, int], bool]


def ancestors(tree: DraftTree, rows: Sequence[int]) -> Rule:
    """(row, column) → whether it may look: at itself and at what it hangs on. Pairs of places in `rows`."""
    place = {node: i for i, node in enumerate(rows)}
    found = {(a, b): False for a in range(len(rows)) for b in range(len(rows))}
    for i, node in enumerate(rows):
        while node >= 0:
            found[i, place[node]] = True
            node = tree.parents[node]
    return found


def telling(tree: DraftTree, most: int) -> list[int]:
    """Kept nodes worth a row: the likeliest of the longest branches with its root, then what hangs beside it."""
    chosen = [0, *likeliest(tree, tree.kept)][:most]
    beside = [i for i in tree.kept if i not in chosen and tree.parents[i] in chosen]
    rank = {node: sum(tree.parents[i] == tree.parents[node] for i in beside if i < node) for node in beside}
    chosen += sorted(beside, key=lambda node: (rank[node], node))[: most - len(chosen)]  # one at each fork first
    return sorted(chosen)


def both_ways(count: int) -> Rule:
    return {(a, b): True for a in range(count) for b in range(count)}


class Grid:
    """One matrix: names of its rows, a column for the text, and a cell for every pair."""

    def __init__(self, name: str, hue: str, x: float, names: Sequence[str], say: Say):
        self.name, self.hue, self.x, self.names, self.say = name, hue, x, names, say
        self.cell = min(CELL, CELL * SHOWN / max(1, len(names)))

    @property
    def left(self) -> float:
        """Where the cells of the draft begin."""
        return self.x + LABEL + TEXT + 6

    def y(self, row: int) -> float:
        return TOP + row * self.cell

    def ground(self, title: str) -> list[Shape]:
        """Title, row names, column numbers, and the column of the text."""
        shapes = [Shape(f"{self.name}.title", "text", self.x, 22, label=title, look="title", size=15, hue=self.hue)]
        shapes.append(self.over("text", self.x + LABEL + TEXT / 2, self.say("mask.text", {})))
        for i, name in enumerate(self.names):
            label = Shape(f"{self.name}.n{i}", "text", self.x + LABEL - 6, self.y(i) + self.cell * 0.74, size=12)
            label.label, label.look, label.anchor = fit(f"{name} {i}", LABEL - 6, 12), "words", "end"
            shapes += [label, self.over(str(i), self.left + (i + 0.5) * self.cell, str(i)), self.context(i)]
        return shapes

    def over(self, name: str, x: float, label: str) -> Shape:
        """A column's heading."""
        text = Shape(f"{self.name}.c{name}", "text", x, TOP - 6, label=label, look="muted", size=11, anchor="middle")
        return text

    def context(self, row: int) -> Shape:
        """All of the text before: every row may look at it."""
        shape = Shape(f"{self.name}.t{row}", "rect", self.x + LABEL, self.y(row), TEXT, self.cell - 1.5)
        shape.look, shape.hue = f"cell sees sure row{row}", self.hue
        shape.about = self.say("mask.about.text", {"a": self.names[row]})
        return shape

    def cells(self, rule: Rule, words: str) -> list[Shape]:
        """`words` names the sentences that say why a row may look at a column, or may not."""
        return [self.pair(a, b, sees, words) for (a, b), sees in rule.items()]

    def pair(self, a: int, b: int, sees: bool, words: str) -> Shape:
        side = self.cell - 1.5
        shape = Shape(f"{self.name}.{a}.{b}", "rect", self.left + b * self.cell, self.y(a), side, side)
        shape.look, shape.hue = self.look(a, b, sees), self.hue
        case = "self" if a == b else f"{words}.{'sees' if sees else 'blind'}"
        side_word = "later" if b > a else "before"
        key = f"mask.about.{case}" if words == "tree" or a == b else f"mask.about.{words}.{side_word}"
        shape.about = self.say(key, {"a": self.names[a], "b": self.names[b], "i": a, "j": b})
        return shape

    def look(self, a: int, b: int, sees: bool, picked: bool = False) -> str:
        side = "itself" if a == b else "later" if b > a else "before"
        return f"cell {'sees' if sees else 'blind'} {side} {self.name}{' picked' if picked else ''}"

    def pick(self, rule: Rule, row: int, on: bool = True) -> Change:
        """The row whose turn it is stands out, or stands back again."""
        own = {b: sees for (a, b), sees in rule.items() if a == row}
        return {f"{self.name}.{row}.{b}": {"look": self.look(row, b, sees, on)} for b, sees in own.items()}


def named(trace: Trace, tokens: Sequence[int]) -> list[str]:
    known = words(trace)
    return [spell(known.get(token, f"<{token}>")) for token in tokens]


class Masks:
    """A tree's matrix on the left, a block's on the right, both drafted after the same text where there is such."""

    def __init__(self, tree: Trace, block: Trace, say: Say):
        numbers = meet(tree, block)
        self.say, self.number = say, numbers[1]
        self.tree, self.kept = tree.steps[numbers[0]].draft, tree.steps[numbers[0]].draft.kept
        self.rows = telling(self.tree, SHOWN)
        slots = block.steps[numbers[1]].draft.tokens[:SHOWN]
        self.trees = ancestors(self.tree, self.rows)
        self.blocks = both_ways(len(slots))
        names = named(tree, [self.tree.tokens[i] for i in self.rows])
        self.left = Grid("tree", tree.header.method.key, 4, names, say)
        right = WIDTH / 2 + GAP / 2
        blank = say("mask.blank", {})
        self.right = Grid(
            "block", block.header.method.key, right, [named(block, slots)[0], *[blank] * (len(slots) - 1)], say
        )
        self.checked = named(block, slots)
        self.titles = {"tree": tree.header.method.title, "block": block.header.method.title}
        self.shapes: list[Shape] = []
        self.frames: list[Frame] = []

    def show(self, *shapes: Shape) -> Change:
        self.shapes += shapes
        return {shape.id: {"on": True} for shape in shapes}

    def frame(self, kind: str, change: Change, values: Mapping[str, Value] | None = None) -> None:
        said = self.say(f"mask.{kind}", self.sizes | dict(values or {}))
        self.frames.append(Frame(self.say("mask.headline", {}), said, change, at=self.number, kind=kind))

    @property
    def sizes(self) -> dict[str, Value]:
        slots = len(self.right.names)
        return {"shown": len(self.rows), "kept": len(self.kept), "slots": slots, **self.titles}

    @property
    def deepest(self) -> int:
        """The row to point at in the tree: the one with most to look at."""
        return max(range(len(self.rows)), key=lambda i: (sum(self.trees[i, b] for b in range(len(self.rows))), -i))

    def scene(self) -> Scene:
        tree, block = self.left, self.right
        title = self.say("mask.title.tree", {"method": self.titles["tree"]})
        self.frame("tree", self.show(*tree.ground(title), *tree.cells(self.trees, "tree")))
        row = self.deepest
        count = sum(self.trees[row, b] for b in range(len(self.rows)))
        values = {"name": tree.names[row], "count": count, "blind": len(self.rows) - count}
        self.frame("branch", tree.pick(self.trees, row), values)
        title = self.say("mask.title.block", {"method": self.titles["block"]})
        shown = self.show(*block.ground(title), *block.cells(self.blocks, "block"))
        self.frame("block", tree.pick(self.trees, row, False) | shown)
        middle = len(block.names) // 3
        self.frame("slot", block.pick(self.blocks, middle), {"slot": middle, "later": len(block.names) - 1 - middle})
        self.frame("check", self.check(middle))
        self.frames[-1].stop = True
        return Scene(WIDTH, TOP + SHOWN * CELL + 6, self.shapes, self.frames)

    def check(self, picked: int) -> Change:
        """The block filled in, before the target: a chain, in which nobody sees what comes later."""
        change = self.right.pick(self.blocks, picked, False)
        for a, b in self.blocks:
            if b > a:
                change[f"block.{a}.{b}"] = {"look": self.right.look(a, b, False)}
        for i, name in enumerate(self.checked):
            change[f"block.n{i}"] = {"label": fit(f"{name} {i}", LABEL - 6, 12)}
        change["block.title"] = {"label": self.say("mask.title.check", {"method": self.titles["block"]})}
        return change


def picture(tree: Trace, block: Trace, say: Say) -> Scene:
    """The masks of a run that drafts trees and of one that drafts blocks."""
    return Masks(tree, block, say).scene()
