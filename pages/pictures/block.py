"""Inside a block: the text's features enter every layer as keys and values, and one pass fills a column of masks.

Rows are slots, from the root down; the way leads from left to right: the masks, the drafter's layers, the LM head, the
guesses. A layer's column holds what that layer alone would have guessed, as the run recorded it; above it stand its
keys and values of the text.
"""

from collections.abc import Mapping

from pages.pictures.scene import Frame, Scene, Shape, Value, fit
from pages.pictures.step import Say, spell
from spec_core.trace import Trace, words

WIDTH = 900.0
SLOT, SLOT_W = 36.0, 92.0  # the column of the masks
LAYERS, LAYERS_END, WIDEST = 150.0, 690.0, 140.0  # where the layers stand, and how wide one may be
HEAD, HEAD_W, GUESS, GUESS_W = 700.0, 34.0, 750.0, 106.0
TEXT, TRUNK, CONTEXT, TALL = 4.0, 44.0, 66.0, 22.0  # text and features, the way to the layers, keys and values; a box
TOP, ROWS, PITCHES = 112.0, 338.0, (15.0, 26.0)  # the first row, the height of all, and what a row may take of it
NEW = 26.0  # width of the part of a context bar that this step adds

Change = dict[str, dict[str, Value]]


def hatch(x: float, y: float, w: float, h: float) -> str:
    """Slanted lines across a box: nothing is known there yet."""
    lines, step = "", 8.0
    start = x - h + step / 2
    while start < x + w:
        a, b = max(start, x), min(start + h, x + w)
        lines += f"M{a:.1f} {y + h - (a - start):.1f}L{b:.1f} {y + h - (b - start):.1f}"
        start += step
    return lines


class Block:
    """One step's draft, from the masks to their names."""

    def __init__(self, trace: Trace, number: int, say: Say):
        assert trace.header.drafter, "a run without a drafter has no inside"
        self.trace, self.number, self.say = trace, number, say
        self.step, self.tree = trace.steps[number], trace.steps[number].draft
        self.drafter, self.target = trace.header.drafter, trace.header.target
        self.hue, self.known = trace.header.method.key, words(trace)
        one = next(one for one in self.step.passes if one.kind == "draft")
        self.slots, self.depth = len(self.tree.tokens), one.layers
        written = sum(len(step.committed) for step in trace.steps[:number])
        self.sure = len(trace.header.prompt.ids) + written - 1  # tokens the target has read; the root is not among them
        self.new = one.rows - self.slots
        self.pitch = min(PITCHES[1], max(PITCHES[0], ROWS / self.slots))
        self.column = min(WIDEST, (LAYERS_END - LAYERS) / self.depth)
        self.shapes: list[Shape] = []
        self.frames: list[Frame] = []

    # Where things stand

    def layer_x(self, layer: int) -> float:
        return LAYERS + layer * self.column

    @property
    def layer_w(self) -> float:
        return self.column - 10

    def y(self, slot: int) -> float:
        return TOP + slot * self.pitch

    @property
    def tall(self) -> float:
        """Height of a slot's box."""
        return self.pitch - 4

    @property
    def bottom(self) -> float:
        return self.y(self.slots)

    # What is said and shown

    @property
    def sizes(self) -> dict[str, Value]:
        """Every number a sentence may name."""
        return {
            "slots": self.slots,
            "count": self.slots - 1,
            "depth": self.depth,
            "sure": self.sure,
            "new": self.new,
            "past": self.sure - self.new,
            "hidden": self.drafter.hidden,
            "fused": len(self.drafter.taps) * self.target.hidden,
            "taps": ", ".join(map(str, self.drafter.taps)),
            "tapped": len(self.drafter.taps),
            "layers": self.target.layers,
            "vocab": self.target.vocab,
            "root": self.token(self.tree.tokens[0]),
        }

    def token(self, token: int) -> str:
        return spell(self.known.get(token, f"<{token}>"))

    def show(self, *shapes: Shape) -> Change:
        self.shapes += shapes
        return {shape.id: {"on": True} for shape in shapes}

    def frame(self, kind: str, change: Change, values: Mapping[str, Value] | None = None) -> None:
        said = self.say(f"block.{kind}", {**self.sizes, **(values or {})})
        headline = self.say("step.headline", {"n": self.number, "all": len(self.trace.steps) - 1})
        self.frames.append(Frame(headline, said, change, at=self.number, kind=kind))

    def heading(self, name: str, x: float, values: Mapping[str, Value] | None = None) -> Shape:
        """A column's name, above its first slot."""
        label = self.say(f"block.name.{name}", values or {})
        number = (values or {}).get("n", "")
        return Shape(f"h.{name}{number}", "text", x, TOP - 6, label=label, look="heading", size=12.5)

    def box(self, name: str, x: float, y: float, w: float, look: str, label: str, about: str) -> Shape:
        """A box with a label that fits it; what is the target's wears ink, what is the drafter's its hue."""
        hue, h = "" if "root" in look else self.hue, TALL if y < TOP else self.tall
        size = min(12.5, h * 0.74)
        shape = Shape(name, "rect", x, y, w, h, look, hue, fit(label, w - 10, size), size=size)
        shape.about = self.say(f"block.about.{about}", self.sizes)
        return shape

    def way(self, name: str, d: str, tip: tuple[float, float], look: str = "arrow") -> Shape:
        """A line that ends in an arrow head at `tip`, pointing down where it comes from above, else to the right."""
        x, y = tip
        down = f"M{x - 3.5:.1f} {y - 4:.1f}L{x:.1f} {y:.1f}L{x + 3.5:.1f} {y - 4:.1f}"
        right = f"M{x - 5:.1f} {y - 3.5:.1f}L{x:.1f} {y:.1f}L{x - 5:.1f} {y + 3.5:.1f}"
        return Shape(name, "path", 0, 0, look=look, hue=self.hue, d=d + (down if "V" in d else right))

    def scene(self) -> Scene:
        self.text()
        self.masks()
        self.feature()
        self.inject()
        self.cache()
        for layer in range(self.depth):
            self.layer(layer)
        self.head()
        return Scene(WIDTH, self.bottom + 28, self.shapes, self.frames)

    # The frames

    def text(self) -> None:
        """What is sure: the text the target has read, and the root it has not."""
        chip = self.box("text", SLOT, TEXT, SLOT_W, "node root sure", self.say("block.context", self.sizes), "text")
        root = self.box("slot0", SLOT, self.y(0), SLOT_W, "node root newest", str(self.sizes["root"]), "root")
        self.frame("text", self.show(chip, root, self.heading("root", SLOT)))

    def masks(self) -> None:
        """A column of masks below the root, each with the number of its place, and the one pass that will fill them."""
        shapes = list[Shape]()
        for slot in range(1, self.slots):
            y = self.y(slot)
            lines = Shape(f"hatch{slot}", "path", 0, 0, look="hatch mask", hue=self.hue)
            lines.d = hatch(SLOT, y, SLOT_W, self.tall)
            number = Shape(f"n{slot}", "text", SLOT - 7, y + self.tall * 0.78, label=f"+{slot}", look="muted", size=11)
            number.anchor = "end"
            shapes += [lines, number, self.box(f"slot{slot}", SLOT, y, SLOT_W, "node mask", "", "mask")]
        end = self.layer_x(self.depth) - 10
        line = Shape("hl.pass", "rect", SLOT, self.bottom + 3, end - SLOT, 3, "bracket", self.hue)
        text = Shape("h.pass", "text", (SLOT + end) / 2, self.bottom + 21, label=self.say("block.bracket", self.sizes))
        text.look, text.anchor = "heading", "middle"
        self.frame("masks", self.show(*shapes, text, line))

    def feature(self) -> None:
        """The target has read the text; its features are fused into one vector a token."""
        w, x, fuse_x = SLOT_W, LAYERS, LAYERS + SLOT_W + 22
        target = self.box("target", x, TEXT, w, "node root tap", self.say("block.target", {}), "target")
        fuse = self.box("fc", fuse_x, TEXT, w, "node pending fc", self.say("block.fc", {}), "fc")
        middle = TEXT + TALL / 2
        first = self.way("d1", f"M{SLOT + SLOT_W + 1:.1f} {middle:.1f}H{x - 2:.1f}", (x - 2, middle))
        second = self.way("d2", f"M{x + w + 1:.1f} {middle:.1f}H{fuse_x - 2:.1f}", (fuse_x - 2, middle))
        self.frame("feature", self.show(target, fuse, first, second))

    def inject(self) -> None:
        """One way along with a branch into every layer: the same context, as keys and values of each."""
        label = self.say("block.name.context", {})
        name = Shape("h.context", "text", SLOT, CONTEXT + TALL * 0.7, label=label, look="heading", size=12.5)
        shapes = [name]
        for layer in range(self.depth):
            shapes += [self.heading("layer", self.layer_x(layer), {"n": layer + 1}), *self.context(layer)]
        self.frame("inject", self.show(*shapes))

    def context(self, layer: int) -> list[Shape]:
        """A layer's keys and values of the text: those it has from before, those that this step adds."""
        x, w = self.layer_x(layer), self.layer_w - NEW - 2
        old = self.box(f"old{layer}", x, CONTEXT, w, "node pending context", "K V", "old")
        new = self.box(f"new{layer}", x + w + 2, CONTEXT, NEW, "node pending context fresh", "", "new")
        from_, to = LAYERS + SLOT_W * 1.5 + 22, x + self.layer_w / 2
        d = f"M{from_:.1f} {TEXT + TALL + 1:.1f}V{TRUNK:.1f}H{to:.1f}V{CONTEXT - 2:.1f}"
        return [old, new, self.way(f"trunk{layer}", d, (to, CONTEXT - 2), "arrow back injected")]

    def cache(self) -> None:
        """Of the context only the newly sure tokens are computed; the rest is kept from step to step."""
        change: Change = {f"new{layer}": {"look": "node accepted context fresh"} for layer in range(self.depth)}
        change |= {f"old{layer}": {"look": "node left context kept"} for layer in range(self.depth)}
        change["old0"] = {"look": "node left context kept", "label": f"K V {self.sure - self.new}"}
        number = Shape("count", "text", self.layer_x(0) + self.layer_w - NEW / 2, CONTEXT + TALL * 0.72)
        number.label, number.look, number.size, number.anchor = f"+{self.new}", "number fresh", 12, "middle"
        self.frame("cache", change | self.show(number))

    def layer(self, layer: int) -> None:
        """What each slot would be if the drafter ended here."""
        final, x = self.tree.tokens[1:], self.layer_x(layer)
        guesses = self.tree.layers[layer] if self.tree.layers else final if layer == self.depth - 1 else []
        cells = [self.box(f"c{layer}.0", x, self.y(0), self.layer_w, "node root", str(self.sizes["root"]), "root")]
        same = 0
        for slot, token in enumerate(guesses, 1):
            held = token == final[slot - 1]
            same += held
            cells.append(self.cell(layer, slot, token, held))
        kind = "last" if layer == self.depth - 1 else "layer"
        self.frame(kind, self.show(*cells), {"n": layer + 1, "same": same})

    def cell(self, layer: int, slot: int, token: int, held: bool) -> Shape:
        look = "node pending final" if held else "node lost other"
        name, x, y = f"c{layer}.{slot}", self.layer_x(layer), self.y(slot)
        shape = self.box(name, x, y, self.layer_w, look, self.token(token), "mask")
        values = {"n": layer + 1, "slot": slot, "token": self.token(token)}
        shape.about = self.say("block.about.held" if held else "block.about.other", values)
        return shape

    def head(self) -> None:
        """One call of the LM head names all slots."""
        bar = Shape("head", "rect", HEAD, self.y(1), HEAD_W, self.bottom - self.y(1) - 4, "node root head", label="1×")
        bar.about = self.say("block.about.head", self.sizes)
        shapes = [bar, self.heading("head", HEAD), self.heading("guess", GUESS)]
        shapes[1].y = shapes[2].y = self.y(1) - 6
        shapes[1].x, shapes[1].anchor = HEAD + HEAD_W / 2, "middle"
        for slot in range(1, self.slots):
            shapes += self.guess(slot)
        best = max(range(1, self.slots), key=lambda slot: self.tree.probs[slot])
        self.frame("head", self.show(*shapes), {"best": self.token(self.tree.tokens[best])})

    def guess(self, slot: int) -> list[Shape]:
        """A slot's guess, and its q beside it."""
        y, q, token = self.y(slot), self.tree.probs[slot], self.token(self.tree.tokens[slot])
        chip = self.box(f"g{slot}", GUESS, y, GUESS_W, "node pending guess", token, "mask")
        chip.about = self.say("block.about.guess", {"slot": slot, "token": token, "q": f"{q:.3f}"})
        text = Shape(f"q{slot}", "text", WIDTH - 6, y + self.tall * 0.78, label=f"{q:.2f}".lstrip("0"), look="muted")
        text.size, text.anchor = 12, "end"
        return [chip, text]


def picture(trace: Trace, number: int, say: Say) -> Scene:
    """The inside of step `number` of a run that drafts blocks."""
    return Block(trace, number, say).scene()


def numbers(trace: Trace, number: int) -> Mapping[str, Value]:
    """What the lesson may say of that picture."""
    return Block(trace, number, lambda key, values: "").sizes
