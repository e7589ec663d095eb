"""The text of a run, token by token: which were drafted, which the target added, and which no draft could have held."""

from pages.pictures.scene import Frame, Scene, Shape, Value, width
from pages.pictures.step import Say, spell
from spec_core.trace import Trace, accepted, words

WIDTH, LEFT = 900.0, 4.0
TOP, LINE, CHIP = 12.0, 38.0, 28.0
SIZE, GAP, MARK = 14.0, 5.0, 18.0

Change = dict[str, dict[str, Value]]


def beyond(trace: Trace) -> int:
    """Tokens of the text for which the drafter has no word."""
    return sum(len(step.beyond) for step in trace.steps[1:])


def chips(trace: Trace, say: Say) -> list[Shape]:
    """The text after the prefill as chips, in lines."""
    known, hue, shapes = words(trace), trace.header.method.key, list[Shape]()
    x, y = LEFT, TOP
    for number, step in enumerate(trace.steps[1:], 1):
        held = accepted(step)
        for place, token in enumerate(step.committed):
            label, outside = spell(known.get(token, f"<{token}>")), token in step.beyond
            w = width(label, SIZE) + 14 + (MARK if outside else 0)
            x, y = (x, y) if x + w <= WIDTH - LEFT else (LEFT, y + LINE)
            own = place < held
            look = f"chip {'drafted' if own else 'bonus'}"
            shape = Shape(f"t{number}.{place}", "rect", x, y, w, CHIP, look, hue if own else "", label, size=SIZE)
            kind = "beyond.about" if outside else "chip.drafted" if own else "chip.bonus"
            shape.about = say(kind, {"n": number, "token": label})
            shapes.append(shape)
            x += w + GAP
    return shapes


def picture(trace: Trace, say: Say) -> Scene:
    """Two frames: the text by its origin, then the tokens beyond the drafter's vocabulary marked."""
    shapes = chips(trace, say)
    outside = {
        f"t{number}.{place}"
        for number, step in enumerate(trace.steps[1:], 1)
        for place, token in enumerate(step.committed)
        if token in step.beyond
    }
    drafter = trace.header.drafter
    values: dict[str, Value] = {
        "n": len(outside),
        "all": len(shapes),
        "words": drafter.vocab if drafter else 0,
        "vocab": trace.header.target.vocab,
    }
    last = len(trace.steps) - 1
    headline = say("step.headline", {"n": last, "all": last})
    shown: Change = {shape.id: {"on": True} for shape in shapes}
    marked: Change = {name: {"look": "chip bonus beyond", "mark": "∉"} for name in outside}
    frames = [
        Frame(headline, say("beyond.text", values), shown, at=last, kind="whole"),
        Frame(headline, say("beyond.marked", values), marked, at=last, kind="beyond"),
    ]
    height = max((shape.y for shape in shapes), default=TOP) + LINE
    return Scene(WIDTH, height, shapes, frames)
