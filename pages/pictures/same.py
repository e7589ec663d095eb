"""Greedy runs of one prompt, token under token: whatever was drafted, every method's text is plain decoding's.

A row a method; hue where the token had been drafted, ink where the target added it. Below, the whole text as strips.
"""

from collections.abc import Callable, Mapping, Sequence

from pages.pictures.scene import Frame, Scene, Shape, Value, fit
from pages.pictures.step import spell
from spec_core.trace import Trace, accepted, difference, ids, tau, words

Say = Callable[[str, Mapping[str, Value]], str]
Change = dict[str, dict[str, Value]]

WIDTH, HEIGHT, LEFT = 900.0, 356.0, 122.0
WINDOW = 8  # tokens compared in one frame
TOP, PITCH, CHIP = 26.0, 34.0, 28.0
STRIP, THIN = 15.0, 9.0  # from strip to strip, and a strip's height


def yardstick(runs: Sequence[Trace]) -> Trace | None:
    """The run that drafts nothing."""
    return next((run for run in runs if run.header.drafter is None and tau(run) == 1.0), None)


def drafted(run: Trace) -> list[bool]:
    """For every token of the text: was it a guess?"""
    return [i < accepted(step) for step in run.steps for i in range(len(step.committed))]


class Comparison:
    """The shapes, and the frames that sweep over them."""

    def __init__(self, runs: Sequence[Trace], plain: Trace, say: Say):
        self.runs, self.say, self.plain = [plain, *(run for run in runs if run is not plain)], say, ids(plain)
        self.length = max(len(ids(run)) for run in runs)
        self.cell = (WIDTH - LEFT) / self.length
        self.strips = TOP + len(self.runs) * PITCH + 24
        self.shapes: list[Shape] = []
        self.windows: list[list[str]] = [[] for _ in range(0, self.length, WINDOW)]
        for row, run in enumerate(self.runs):
            self.write(row, run)

    def write(self, row: int, run: Trace) -> None:
        """One method: its name twice, its tokens as chips and as cells."""
        key, known, own = run.header.method.key, words(run), drafted(run)
        name = self.say("lane.title", {"key": key, "title": run.header.method.title})
        self.shapes.append(self.title(f"n{row}", TOP + row * PITCH + 19, name, key, 14))
        for place, token in enumerate(ids(run)):
            hue, look = (key, "drafted") if own[place] else ("", "bonus")
            fine = place < len(self.plain) and token == self.plain[place]
            column, name = place % WINDOW, f"t{row}.{place}"
            w = (WIDTH - LEFT) / WINDOW - 4
            x, y = LEFT + column * (w + 4), TOP + row * PITCH
            chip = Shape(name, "rect", x, y, w, CHIP, f"chip {look} {'same' if fine else 'other'}", hue)
            chip.label, chip.size = fit(spell(known.get(token, f"<{token}>")), w - 30, 14), 14
            chip.mark = ("✓" if fine else "✕") if row else ""
            chip.about = self.say(f"same.{look}", {"n": place + 1})
            self.windows[place // WINDOW].append(name)
            x, y = LEFT + place * self.cell, self.strips + row * STRIP
            look = "time draft" if own[place] else "time target"
            cell = Shape(f"c{row}.{place}", "rect", x, y, self.cell - 1.5, THIN, f"{look} strip", hue)
            self.shapes += [chip, cell]

    def title(self, name: str, y: float, label: str, hue: str, size: float) -> Shape:
        return Shape(name, "text", 0, y, look="title", hue=hue, label=fit(label, LEFT, size), size=size, on=True)

    def frames(self) -> list[Frame]:
        """Eight tokens at a time, then the verdict on all of them."""
        found, last = list[Frame](), list[str]()
        for number, names in enumerate(self.windows):
            first = number * WINDOW
            change: Change = {name: {"on": False} for name in last}
            change.update({name: {"on": True} for name in [*names, *(f"c{name[1:]}" for name in names)]})
            end = min(first + WINDOW, self.length)
            values: Mapping[str, Value] = {"first": first + 1, "last": end, "methods": len(self.runs)}
            found.append(self.frame("compare", values, change, end))
            last = names
        return [*found, self.verdict()]

    def verdict(self) -> Frame:
        """All equal, or where the first of them departs and how close the two best tokens were there."""
        parted = [d for run in self.runs[1:] if (d := difference(run, self.runs[0]))]
        where = min(parted, key=lambda d: d.position, default=None)
        values: dict[str, Value] = {"tokens": len(self.plain), "methods": len(self.runs) - 1}
        values |= {"where": where.position + 1, "gap": f"{where.gap:.1e}"} if where else {}
        made = self.frame("differs" if where else "equal", values, {}, self.length)
        made.stop = True
        return made

    def frame(self, kind: str, values: Mapping[str, Value], change: Change, upto: int) -> Frame:
        """upto: tokens shown; its step is the one by which plain decoding wrote the last of them."""
        headline, said = self.say("same.headline", {}), self.say(f"same.{kind}", values)
        return Frame(headline, said, change, at=max(0, upto - 1), kind=kind)


def picture(runs: Sequence[Trace], say: Say) -> Scene:
    """Greedy runs of one prompt, plain decoding among them."""
    plain = yardstick(runs)
    if plain is None:
        raise ValueError("there is no plain run to compare with")
    found = Comparison(runs, plain, say)
    frames = found.frames()
    return Scene(WIDTH, max(HEIGHT, found.strips + len(runs) * STRIP + 4), found.shapes, frames)
