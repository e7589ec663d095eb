"""Inside a draft that goes from guess to guess: which target layers are lent, what is joined with what, what waits.

A row is a token, from top to bottom; the way leads from left to right. All sizes are the run's own, from its header.
What is the target's wears ink, what is the drafter's its method's hue.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from pages.pictures.scene import Bars, Frame, Scene, Shape, Value, fit
from pages.pictures.step import Say, spell
from spec_core.trace import DraftTree, Step, Trace, Word, accepted, words

WIDTH, LEFT = 900.0, 4.0
TOP, PITCH, TALL = 62.0, 46.0, 30.0
READ = 3  # tokens shown that the target has read; the root is the next row
PASSES = 3  # draft passes followed
WIDE, NARROW, STACK = 100.0, 52.0, 112.0  # a column of tokens, of vectors, the target's layers
SLIM = 28.0  # a vector among several
WORD, NUMBER, FINE = 14.0, 13.0, 11.0  # sizes of letters

Change = dict[str, dict[str, Value]]


def liveliest(trace: Trace) -> int:
    """The first of the steps in which most guesses held, once there is some text: where there is most to see."""
    written, late = 0, [len(trace.steps) - 1]
    for number, step in enumerate(trace.steps):
        late += [number] * (number > 0 and written > READ)
        written += len(step.committed)
    return max(sorted(late), key=lambda n: accepted(trace.steps[n]))


def favourites(tree: DraftTree, most: int) -> list[int]:
    """Down from the root along the likeliest child each time; the root is not among them."""
    way = [0]
    while len(way) <= most:
        below = [i for i, parent in enumerate(tree.parents) if parent == way[-1]]
        if not below:
            break
        way.append(max(below, key=lambda i: tree.probs[i]))
    return way[1:]


def rivals(tree: DraftTree, parent: int, known: Mapping[int, Word]) -> Bars:
    """What the drafter gave to its first choices after `parent`, and nothing for the target, who was not asked yet."""
    pairs = [(tree.tokens[i], tree.probs[i]) for i, up in enumerate(tree.parents) if up == parent]
    pairs += [pair for lost in tree.others if lost.node == parent for pair in zip(lost.tokens, lost.probs, strict=True)]
    best = sorted(pairs, key=lambda pair: -pair[1])[:6]
    return Bars([[spell(known.get(token, f"<{token}>")), -1.0, q] for token, q in best])


class Columns:
    """Where each column stands: x and width by name, the gaps between them all alike."""

    def __init__(self, widths: Sequence[tuple[str, float]]):
        gap = (WIDTH - 2 * LEFT - sum(w for _, w in widths)) / (len(widths) - 1)
        self.w = dict(widths)
        self.x: dict[str, float] = {}
        x = LEFT
        for name, w in widths:
            self.x[name] = x
            x += w + gap

    def end(self, name: str) -> float:
        return self.x[name] + self.w[name]

    def middle(self, name: str) -> float:
        return self.x[name] + self.w[name] / 2


def row_y(row: int) -> float:
    return TOP + row * PITCH


def arrow(x: float, y: float, to: float) -> str:
    """A level arrow."""
    return f"M{x:.1f} {y:.1f}H{to:.1f}M{to - 5:.1f} {y - 3.5:.1f}L{to:.1f} {y:.1f}L{to - 5:.1f} {y + 3.5:.1f}"


def return_way(x: float, y: float, to_x: float, to_y: float, lane: float) -> str:
    """Down from (x, y) into the lane between two rows, back along it, and down onto (to_x, to_y)."""
    return (
        f"M{x:.1f} {y:.1f}V{lane:.1f}H{to_x:.1f}V{to_y:.1f}"
        f"M{to_x - 3.5:.1f} {to_y - 4:.1f}L{to_x:.1f} {to_y:.1f}L{to_x + 3.5:.1f} {to_y - 4:.1f}"
    )


class Flow:
    """One step's draft from the inside: (feature, embedding of the next token) → the next feature → a token."""

    def __init__(self, trace: Trace, number: int, say: Say):
        assert trace.header.drafter, "a run without a drafter has no inside"
        self.trace, self.number, self.say = trace, number, say
        self.step: Step = trace.steps[number]
        self.target, self.drafter = trace.header.target, trace.header.drafter
        self.hue, self.known = trace.header.method.key, words(trace)
        self.shapes: list[Shape] = []
        self.frames: list[Frame] = []
        self.bars: dict[str, Bars] = {}
        self.several = len(self.drafter.taps) > 1
        self.at = Columns(self.columns())
        self.sure = self.before()[-READ - 1 :]
        self.way = favourites(self.step.draft, PASSES)

    def columns(self) -> list[tuple[str, float]]:
        """Names and widths from left to right."""
        taps = max(1, len(self.drafter.taps))
        feature = NARROW if taps == 1 else taps * (SLIM + 2) - 2
        mixed = [("fc", NARROW), ("mixed", NARROW)] if self.several else []
        joined = [] if self.several else [("fc", NARROW)]
        rest = [("layers", NARROW), ("out", NARROW), ("head", NARROW), ("guess", WIDE)]
        return [
            ("text", WIDE),
            ("target", STACK),
            ("feature", feature),
            *mixed,
            ("embedding", WIDE - 12),
            *joined,
            *rest,
        ]

    def before(self) -> list[int]:
        """The text up to and with the root."""
        done = [token for step in self.trace.steps[: self.number] for token in step.committed]
        return [*self.trace.header.prompt.ids, *done]

    def token(self, token: int) -> str:
        return spell(self.known.get(token, f"<{token}>"))

    @property
    def sizes(self) -> dict[str, Value]:
        """Every size a sentence may name."""
        hidden, taps = self.drafter.hidden, self.drafter.taps
        return {
            "hidden": hidden,
            "double": 2 * hidden,
            "fused": len(taps) * self.target.hidden,
            "taps": ", ".join(map(str, taps)),
            "count": max(1, len(taps)),
            "layers": self.target.layers,
            "depth": self.drafter.layers,
            "vocab": self.target.vocab,
            "words": self.drafter.vocab,
            "root": self.token(self.step.draft.tokens[0]),
        }

    # Shapes

    def show(self, *shapes: Shape) -> Change:
        self.shapes += shapes
        return {shape.id: {"on": True} for shape in shapes}

    def frame(self, kind: str, change: Change, values: Mapping[str, Value] | None = None, words: str = "") -> None:
        said = self.say(f"flow.{words or kind}", {**self.sizes, **(values or {})})
        headline = self.say("step.headline", {"n": self.number, "all": len(self.trace.steps) - 1})
        self.frames.append(Frame(headline, said, change, at=self.number, kind=kind))

    def chip(self, name: str, column: str, row: int, token: int, look: str) -> Shape:
        """A token in a row of a column."""
        x, w = self.at.x[column], self.at.w[column]
        hue = "" if "root" in look else self.hue
        shape = Shape(name, "rect", x, row_y(row), w, TALL, look, hue, fit(self.token(token), w - 12, WORD), size=WORD)
        shape.about = self.say(f"flow.about.{column}", {"token": self.token(token)})
        return shape

    def vectors(self, name: str, column: str, row: int, look: str) -> list[Shape]:
        """The vectors of a row: one box, or as many as layers are lent."""
        count = max(1, len(self.drafter.taps)) if column == "feature" else 1
        w = (self.at.w[column] + 2) / count - 2
        hue = "" if "root" in look else self.hue
        boxes = []
        for i in range(count):
            x = self.at.x[column] + i * (w + 2)
            box = Shape(f"{name}.{i}", "rect", x, row_y(row), w, TALL, look, hue)
            box.label, box.size = (
                (str(self.drafter.hidden), NUMBER) if count == 1 else (str(self.drafter.taps[i]), FINE)
            )
            box.about = self.say(f"flow.about.{column}", {**self.sizes, "token": self.owner(row)})
            boxes.append(box)
        return boxes

    def owner(self, row: int) -> str:
        """The token a row belongs to."""
        tokens = [*self.sure, *(self.step.draft.tokens[i] for i in self.way)]
        return self.token(tokens[row]) if row < len(tokens) else ""

    def machine(self, column: str, look: str, rows: int) -> list[Shape]:
        """A box every row goes through, with its name and what it turns into what."""
        x, w = self.at.x[column], self.at.w[column]
        hue = "" if "root" in look else self.hue
        box = Shape(f"m.{column}", "rect", x, TOP - 6, w, rows * PITCH + 2, f"{look} {column}", hue)
        box.about = self.say(f"flow.about.{column}", self.sizes)
        return [box, *self.headings(column)]

    def headings(self, column: str) -> list[Shape]:
        """A column's name, and below it its size."""
        x = self.at.middle(column)
        name = Shape(f"h.{column}", "text", x, TOP - 30, label=self.say(f"flow.name.{column}", self.sizes))
        size = Shape(
            f"z.{column}", "text", x, TOP - 14, label=self.say(f"flow.size.{self.kind_of(column)}", self.sizes)
        )
        name.look, name.anchor = "heading", "middle"
        size.look, size.anchor = "muted", "middle"
        return [name, size] if size.label else [name]

    def kind_of(self, column: str) -> str:
        """The same column means another size where several layers are fused first."""
        return f"{column}.several" if self.several and column in ("fc", "feature") else column

    def stack(self, rows: int) -> list[Shape]:
        """The target's layers as slices from left to right; those lent in the method's hue."""
        x, step = self.at.x["target"], self.at.w["target"] / self.target.layers
        taps = set(self.drafter.taps)
        slices = []
        for layer in range(1, self.target.layers + 1):
            look = "bracket tap" if layer in taps else "rule stack"
            hue = self.hue if layer in taps else ""
            w = max(1.0, step - 1) + (1.5 if layer in taps else 0)
            piece = Shape(f"k{layer}", "rect", x + (layer - 1) * step, TOP - 6, w, rows * PITCH + 2, look, hue)
            piece.about = self.say("flow.about.tap" if layer in taps else "flow.about.target", {"layer": layer})
            slices.append(piece)
        return [*slices, *self.headings("target"), *self.lent(x, step, rows)]

    def lent(self, x: float, step: float, rows: int) -> list[Shape]:
        """The numbers of the layers lent, below them."""
        y = TOP + rows * PITCH + 12
        numbers = []
        for tap in self.drafter.taps:
            number = Shape(f"kn{tap}", "text", x + (tap - 0.5) * step, y, label=str(tap), look="heading tap")
            number.anchor = "middle"
            numbers.append(number)
        return numbers

    def arrows(self, name: str, a: str, b: str, rows: Sequence[int], look: str = "arrow") -> list[Shape]:
        """Level arrows between two neighbouring columns."""
        x, to = self.at.end(a) + 2, self.at.x[b] - 2
        middle = TALL / 2
        return [
            Shape(f"{name}{row}", "path", 0, 0, look=look, hue=self.hue, d=arrow(x, row_y(row) + middle, to))
            for row in rows
        ]

    # Frames

    def begin(self, rows: int) -> int:
        """The text, the target's reading of it, its features. Returns the root's row."""
        root = len(self.sure) - 1
        looks = ["node root read"] * root + ["node root newest"]
        chips = [self.chip(f"t{row}", "text", row, token, looks[row]) for row, token in enumerate(self.sure)]
        self.frame("text", self.show(*chips, *self.headings("text")))
        read = self.arrows("r", "text", "target", range(root))
        self.frame("read", self.show(*self.stack(rows), *read))
        boxes = [box for row in range(root) for box in self.vectors(f"f{row}", "feature", row, "node root feature")]
        change = self.show(*boxes, *self.headings("feature"), *self.arrows("a", "target", "feature", range(root)))
        self.frame("feature", change)
        if self.several:
            self.mix(range(root), rows)
        return root

    def mix(self, rows: Sequence[int], height: int) -> None:
        """Several features become one vector a row."""
        boxes = [box for row in rows for box in self.vectors(f"x{row}", "mixed", row, "node pending mixed")]
        ways = [*self.arrows("b", "feature", "fc", rows), *self.arrows("c", "fc", "mixed", rows)]
        change = self.show(*self.machine("fc", "node pending", height), *self.headings("mixed"), *boxes, *ways)
        self.frame("fuse", change)

    def scene(self) -> Scene:
        rows = READ + max(2, len(self.way))
        root = self.begin(rows)
        self.embed(root)
        self.machines(root, rows)
        self.read_off(root, 0)
        for index in range(1, len(self.way)):
            self.feed(root, index)
            self.again(root, index)
        self.wait()
        return Scene(WIDTH, row_y(rows + 1) + 6, self.shapes, self.frames, self.bars)

    @property
    def source(self) -> str:
        """The column whose vector meets the embedding."""
        return "mixed" if self.several else "feature"

    def embed(self, root: int) -> None:
        """Embeddings come up beside their own tokens, then move up by one."""
        boxes = [
            self.chip(f"e{row}", "embedding", row, self.sure[row], "node root embedding") for row in range(1, root + 1)
        ]
        self.frame("embed", self.show(*boxes, *self.headings("embedding")))
        moved: Change = {box.id: {"y": row_y(row)} for row, box in enumerate(boxes)}
        self.frame("shift", moved)

    def machines(self, root: int, rows: int) -> None:
        """What a pair goes through: fc, where it is still to be joined, and the drafter's layer."""
        last = "embedding"
        if not self.several:
            ways = self.arrows("b", last, "fc", range(root))
            self.frame("join", self.show(*self.machine("fc", "node pending", rows), *ways))
            last = "fc"
        ways = self.arrows("l", last, "layers", range(root))
        out = [*self.vectors("o0", "out", root - 1, "node pending out"), *self.headings("out")]
        out += self.arrows("m", "layers", "out", [root - 1])
        self.frame("layer", self.show(*self.machine("layers", "node pending", rows), *ways, *out))

    def read_off(self, root: int, index: int) -> None:
        """The LM head turns the guessed feature into a token."""
        look = "node pending" if self.drafter.own_head else "node root"
        head = self.machine("head", look, root + max(2, len(self.way)))
        change = self.show(*head, *self.guess(root, index), *self.headings("guess"))
        values = {"guess": self.guessed(index), "q": self.chance(index)}
        self.frame("head", change, values, "head.own" if self.drafter.own_head else "head")

    def guessed(self, index: int) -> str:
        return self.token(self.step.draft.tokens[self.way[index]]) if index < len(self.way) else ""

    def chance(self, index: int) -> str:
        return f"{self.step.draft.probs[self.way[index]]:.2f}" if index < len(self.way) else ""

    def guess(self, root: int, index: int) -> list[Shape]:
        """Pass `index`'s favourite with its q, and the arrows to it."""
        if index >= len(self.way):
            return []
        row, node = root - 1 + index, self.way[index]
        chip = self.chip(f"g{index}", "guess", row, self.step.draft.tokens[node], "node pending guess")
        chip.label = fit(self.token(self.step.draft.tokens[node]), WIDE - 52, WORD)
        chip.note, chip.bars = f"{self.step.draft.probs[node]:.2f}".lstrip("0"), f"b{index}"
        self.bars[chip.bars] = rivals(self.step.draft, self.step.draft.parents[node], self.known)
        return [
            chip,
            *self.arrows(f"h{index}.", "out", "head", [row]),
            *self.arrows(f"g{index}.", "head", "guess", [row]),
        ]

    def feed(self, root: int, index: int) -> None:
        """The guessed feature and the guessed token are the next row's input."""
        row, node = root - 1 + index, self.way[index - 1]
        token = self.step.draft.tokens[node]
        feature = self.fed(f"u{index}", row)
        shapes = [
            self.chip(f"t{row + 1}", "text", row + 1, token, "node pending guess"),
            *feature,
            self.chip(f"e{row + 1}", "embedding", row, token, "node pending embedding guess"),
            *self.returns(index, row),
        ]
        self.frame("back", self.show(*shapes), {"guess": self.guessed(index - 1), "n": index + 1})

    def fed(self, name: str, row: int) -> list[Shape]:
        """The last output once more, where a feature stands."""
        x, w = self.at.x[self.source], self.at.w[self.source]
        box = Shape(f"{name}.0", "rect", x, row_y(row), w, TALL, "node pending out fed", self.hue)
        box.label, box.size = (str(self.drafter.hidden) if w >= NARROW else ""), NUMBER
        box.about = self.say("flow.about.fed", {**self.sizes, "token": self.owner(row)})
        return [box]

    def returns(self, index: int, row: int) -> list[Shape]:
        """The two ways back, in the lane above the row they lead to."""
        below, above = row_y(row - 1) + TALL, row_y(row)
        ways = []
        for lane, (a, b) in enumerate([("guess", "embedding"), ("out", self.source)], 1):
            d = return_way(self.at.middle(a), below, self.at.middle(b), above, below + lane * (PITCH - TALL) / 3)
            ways.append(Shape(f"w{index}.{a}", "path", 0, 0, look="arrow back", hue=self.hue, d=d))
        return ways

    def again(self, root: int, index: int) -> None:
        """The same layer and the same head once more, for one more token."""
        row = root - 1 + index
        line = [self.source, "embedding", *([] if self.several else ["fc"]), "layers", "out"]
        ways = [shape for a, b in pairwise(line[1:]) for shape in self.arrows(f"n{index}{a}", a, b, [row])]
        out = self.vectors(f"o{index}", "out", row, "node pending out")
        change = self.show(*out, *ways, *self.guess(root, index))
        self.frame("again", change, {"n": index + 1, "guess": self.guessed(index)})

    def wait(self) -> None:
        """Count what depended on what: the passes of this draft, one behind the other."""
        kinds = [one.kind for one in self.step.passes]
        self.frame("chain", {}, {"passes": kinds.count("draft"), "heads": kinds.count("head")})


def picture(trace: Trace, number: int, say: Say) -> Scene:
    """The inside of step `number` of a run with a drafter."""
    return Flow(trace, number, say).scene()
