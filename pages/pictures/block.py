"""Inside a block: the text's features enter every layer as keys and values, and one pass fills a row of masks.

Columns are slots, rows are what a slot meets on its way down: its mask, the drafter's layers, the LM head. The rows of
the layers hold what each of them alone would have guessed, as the run recorded it.
"""

from collections.abc import Mapping

from pages.pictures.scene import Frame, Scene, Shape, Value, fit
from pages.pictures.step import Say, spell
from spec_core.trace import Trace, words

WIDTH, LEFT, RIGHT = 900.0, 4.0, 4.0
CONTEXT, CONTEXT_W, TRUNK = 66.0, 74.0, 58.0  # the column of the text's keys and values, and the way that feeds it
SLOTS = 156.0  # where the slots begin
INPUT, TARGET, FUSE, LAYERS, PITCH, TALL = 42.0, 84.0, 122.0, 170.0, 35.0, 27.0
WIDEST = 110.0  # of a slot
NEW = 22.0  # width of the part of a context bar that this step adds

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
        self.pitch = min(WIDEST, (WIDTH - RIGHT - SLOTS) / self.slots)
        self.shapes: list[Shape] = []
        self.frames: list[Frame] = []

    # Where things stand

    def slot_x(self, slot: int) -> float:
        return SLOTS + slot * self.pitch

    @property
    def slot_w(self) -> float:
        return self.pitch - 3

    @property
    def end(self) -> float:
        return SLOTS + self.slots * self.pitch - 3

    def layer_y(self, layer: int) -> float:
        return LAYERS + layer * PITCH

    @property
    def head_y(self) -> float:
        return self.layer_y(self.depth) + 4

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

    def row_name(self, name: str, y: float, values: Mapping[str, Value] | None = None) -> Shape:
        label = self.say(f"block.row.{name}", values or {})
        number = (values or {}).get("n", "")
        return Shape(f"row.{name}{number}", "text", LEFT, y + TALL * 0.66, label=label, look="heading", size=12)

    def box(self, name: str, x: float, y: float, w: float, look: str, label: str, about: str) -> Shape:
        """A box with a label that fits it; what is the target's wears ink, what is the drafter's its hue."""
        hue = "" if "root" in look else self.hue
        size = 12.0 if w > 90 else 11.0 if w > 60 else 10.5
        shape = Shape(name, "rect", x, y, w, TALL, look, hue, fit(label, w - 10, size), size=size)
        shape.about = self.say(f"block.about.{about}", self.sizes)
        return shape

    def down(self, name: str, x: float, y: float, to: float, look: str = "arrow") -> Shape:
        d = f"M{x:.1f} {y:.1f}V{to:.1f}M{x - 3.5:.1f} {to - 4:.1f}L{x:.1f} {to:.1f}L{x + 3.5:.1f} {to - 4:.1f}"
        return Shape(name, "path", 0, 0, look=look, hue=self.hue, d=d)

    def scene(self) -> Scene:
        self.text()
        self.masks()
        self.feature()
        self.inject()
        self.cache()
        for layer in range(self.depth):
            self.layer(layer)
        self.head()
        return Scene(WIDTH, self.head_y + 2 * PITCH + 18, self.shapes, self.frames)

    # The frames

    def text(self) -> None:
        """What is sure: the text the target has read, and the root it has not."""
        label = self.say("block.context", self.sizes)
        chip = self.box("text", CONTEXT, INPUT, CONTEXT_W, "node root sure", label, "text")
        root = self.box(
            "slot0", self.slot_x(0), INPUT, self.slot_w, "node root newest", str(self.sizes["root"]), "root"
        )
        name = Shape(
            "h.root", "text", self.slot_x(0), INPUT - 8, label=self.say("step.root", {}), look="heading", size=12
        )
        self.frame("text", self.show(chip, root, name, self.row_name("text", INPUT)))

    def masks(self) -> None:
        """A row of masks behind the root, and the bracket of the one pass that will fill them."""
        shapes = list[Shape]()
        for slot in range(1, self.slots):
            x = self.slot_x(slot)
            lines = Shape(f"hatch{slot}", "path", 0, 0, look="hatch mask", hue=self.hue)
            lines.d = hatch(x, INPUT, self.slot_w, TALL)
            shapes += [lines, self.box(f"slot{slot}", x, INPUT, self.slot_w, "node mask", "", "mask")]
        x = self.slot_x(1)
        label = self.say("block.bracket", self.sizes)
        text = Shape("h.pass", "text", (x + self.end) / 2, 14, label=label, look="heading", anchor="middle")
        line = Shape("hl.pass", "rect", x, 24, self.end - x, 3, "bracket", self.hue)
        self.frame("masks", self.show(*shapes, text, line))

    def feature(self) -> None:
        """The target has read the text; its features are fused into one vector a token."""
        middle = CONTEXT + CONTEXT_W / 2
        target = self.box("target", CONTEXT, TARGET, CONTEXT_W, "node root tap", self.say("block.target", {}), "target")
        fuse = self.box("fc", CONTEXT, FUSE, CONTEXT_W, "node pending fc", "fc", "fc")
        ways = [self.down("d1", middle, INPUT + TALL, TARGET - 1), self.down("d2", middle, TARGET + TALL, FUSE - 1)]
        names = [self.row_name("target", TARGET), self.row_name("fc", FUSE)]
        self.frame("feature", self.show(target, fuse, *ways, *names))

    def inject(self) -> None:
        """One way down with a branch into every layer: the same context, as keys and values of each."""
        shapes = list[Shape]()
        for layer in range(self.depth):
            y = self.layer_y(layer)
            shapes += [self.row_name("layer", y, {"n": layer + 1}), *self.context(layer, y), self.branch(layer, y)]
        self.frame("inject", self.show(*shapes))

    def context(self, layer: int, y: float) -> list[Shape]:
        """A layer's keys and values of the text: those it has from before, those that this step adds."""
        w = CONTEXT_W - NEW - 2
        old = self.box(f"old{layer}", CONTEXT, y, w, "node pending context", "K V", "old")
        new = self.box(f"new{layer}", CONTEXT + w + 2, y, NEW, "node pending context fresh", "", "new")
        x, to, middle = CONTEXT + CONTEXT_W + 2, SLOTS - 3, y + TALL / 2
        tip = f"M{to - 5:.1f} {middle - 3.5:.1f}L{to:.1f} {middle:.1f}L{to - 5:.1f} {middle + 3.5:.1f}"
        way = Shape(f"in{layer}", "path", 0, 0, look="arrow", hue=self.hue, d=f"M{x:.1f} {middle:.1f}H{to:.1f}{tip}")
        return [old, new, way]

    def branch(self, layer: int, y: float) -> Shape:
        middle, from_ = y + TALL / 2, FUSE + TALL / 2
        to = CONTEXT - 1
        tip = f"M{to - 4:.1f} {middle - 3.5:.1f}L{to:.1f} {middle:.1f}L{to - 4:.1f} {middle + 3.5:.1f}"
        d = f"M{CONTEXT:.1f} {from_:.1f}H{TRUNK:.1f}V{middle:.1f}H{to:.1f}{tip}"
        return Shape(f"trunk{layer}", "path", 0, 0, look="arrow back injected", hue=self.hue, d=d)

    def cache(self) -> None:
        """Of the context only the newly sure tokens are computed; the rest is kept from step to step."""
        change: Change = {f"new{layer}": {"look": "node accepted context fresh"} for layer in range(self.depth)}
        change |= {f"old{layer}": {"look": "node left context kept"} for layer in range(self.depth)}
        number = Shape("count", "text", CONTEXT + CONTEXT_W, LAYERS - 5, look="number fresh", size=12, anchor="end")
        number.label = f"+{self.new}"
        past = Shape("past", "text", CONTEXT, LAYERS - 5, look="muted kept", size=12, label=str(self.sure - self.new))
        self.frame("cache", change | self.show(number, past))

    def layer(self, layer: int) -> None:
        """What each slot would be if the drafter ended here."""
        y, final = self.layer_y(layer), self.tree.tokens[1:]
        guesses = self.tree.layers[layer] if self.tree.layers else final if layer == self.depth - 1 else []
        root = self.box(f"c{layer}.0", self.slot_x(0), y, self.slot_w, "node root", str(self.sizes["root"]), "root")
        cells, same = [root], 0
        for slot, token in enumerate(guesses, 1):
            held = token == final[slot - 1]
            same += held
            cells.append(self.cell(layer, slot, token, held))
        kind = "last" if layer == self.depth - 1 else "layer"
        self.frame(kind, self.show(*cells), {"n": layer + 1, "same": same})

    def cell(self, layer: int, slot: int, token: int, held: bool) -> Shape:
        x, y, look = self.slot_x(slot), self.layer_y(layer), "node pending final" if held else "node lost other"
        shape = self.box(f"c{layer}.{slot}", x, y, self.slot_w, look, self.token(token), "mask")
        values = {"n": layer + 1, "slot": slot, "token": self.token(token)}
        shape.about = self.say("block.about.held" if held else "block.about.other", values)
        return shape

    def head(self) -> None:
        """One call of the LM head names all slots."""
        x, w = self.slot_x(1), self.end - self.slot_x(1)
        bar = self.box("head", x, self.head_y, w, "node root head", self.say("block.head.label", self.sizes), "head")
        shapes = [bar, self.row_name("head", self.head_y), self.row_name("guess", self.head_y + PITCH)]
        for slot in range(1, self.slots):
            shapes += self.guess(slot)
        best = max(range(1, self.slots), key=lambda slot: self.tree.probs[slot])
        self.frame("head", self.show(*shapes), {"best": self.token(self.tree.tokens[best])})

    def guess(self, slot: int) -> list[Shape]:
        """A slot's guess, and its q below it."""
        x, y, q = self.slot_x(slot), self.head_y + PITCH, self.tree.probs[slot]
        chip = self.box(f"g{slot}", x, y, self.slot_w, "node pending guess", self.token(self.tree.tokens[slot]), "mask")
        values = {"slot": slot, "token": self.token(self.tree.tokens[slot]), "q": f"{q:.3f}"}
        chip.about = self.say("block.about.guess", values)
        text = Shape(f"q{slot}", "text", x + self.slot_w / 2, y + TALL + 13, label=f"{q:.2f}".lstrip("0"), look="muted")
        text.size, text.anchor = 11, "middle"
        return [chip, text]


def picture(trace: Trace, number: int, say: Say) -> Scene:
    """The inside of step `number` of a run that drafts blocks."""
    return Block(trace, number, say).scene()


def numbers(trace: Trace, number: int) -> Mapping[str, Value]:
    """What the lesson may say of that picture."""
    return Block(trace, number, lambda key, values: "").sizes
