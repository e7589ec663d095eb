"""The race: every method decodes the same prompt, each in its lane, all on one axis, by a choice of clock."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pages.pictures.scene import Frame, Scene, Shape, Value, fit, fit_end
from spec_core.trace import (
    PassKind,
    Step,
    Trace,
    accepted,
    baseline,
    comparable,
    ids,
    tau,
    text_of,
    tokens_per_second,
    words,
)

Say = Callable[[str, Mapping[str, Value]], str]
Clock = Literal["ms", "passes", "model"]

CLOCKS: tuple[Clock, ...] = ("ms", "passes", "model")
WIDTH, LANE, TOP = 1200.0, 58.0, 24.0
LEFT, RIGHT = 150.0, 175.0
BAR_H, DOT = 17.0, 5.0
SLICES = 90  # frames a race is cut into
SHOWN_MS = 9000.0  # how long it plays, whatever it took
PROSE = 0.5  # width of a letter in the face of sentences, in em
EVEN = 0.995  # a run shown as 1.00× plain has not lost
ORDER: tuple[PassKind, ...] = ("draft", "head", "target", "host")


@dataclass(frozen=True)
class Leg:
    """One step of one lane, in clock units: when it starts, and how long each kind of work takes."""

    start: float
    parts: dict[PassKind, float]

    @property
    def end(self) -> float:
        return self.start + sum(self.parts.values())


def legs(trace: Trace, clock: Clock) -> list[Leg]:
    """The decode steps behind one another. The prefill, the drafter's own too, is left out."""
    found, start = [], 0.0
    for step in trace.steps[1:]:
        leg = Leg(start, COSTS[clock](trace, step))
        found.append(leg)
        start = leg.end
    return found


def measured(trace: Trace, step: Step) -> dict[PassKind, float]:
    """Milliseconds per kind, as the run's own clock saw them."""
    return {kind: sum(p.ms for p in step.passes if p.kind == kind) for kind in ORDER}


def counted(trace: Trace, step: Step) -> dict[PassKind, float]:
    """Target passes: one per step, drafting for free."""
    return {"target": 1.0}


def modelled(trace: Trace, step: Step) -> dict[PassKind, float]:
    """Weights read, in units of a target pass: layers and head once per pass, however many rows go through."""
    target, drafter = trace.header.target, trace.header.drafter
    whole = target.layers * target.layer_weights + target.head_weights
    cost: dict[PassKind, float] = dict.fromkeys(ORDER, 0.0)
    for one in step.passes:
        if one.kind == "target":
            cost["target"] += 1.0
        elif drafter and one.kind == "draft":
            cost["draft"] += one.layers * drafter.layer_weights / whole
        elif drafter and one.kind == "head":
            cost["head"] += drafter.head_weights / whole
    return cost


COSTS: dict[Clock, Callable[[Trace, Step], dict[PassKind, float]]] = {
    "ms": measured,
    "passes": counted,
    "model": modelled,
}


def duration(trace: Trace, clock: Clock) -> float:
    """How long the whole decode takes on that clock."""
    run = legs(trace, clock)
    return run[-1].end if run else 0.0


def per_token(trace: Trace, clock: Clock) -> float:
    tokens = sum(len(step.committed) for step in trace.steps[1:])
    return duration(trace, clock) / tokens if tokens else 0.0


def speedup(trace: Trace, plain: Trace, clock: Clock) -> float:
    """Speed against plain decoding on that clock, by time per token; 0 where nothing was decoded."""
    own = per_token(trace, clock)
    return per_token(plain, clock) / own if own else 0.0


def fair(trace: Trace, plain: Trace, clock: Clock) -> bool:
    """The two may be compared on that clock: one that counts work knows no busy device."""
    return clock != "ms" or comparable(trace, plain)


def mean_leg(trace: Trace, clock: Clock) -> dict[PassKind, float]:
    """A mean step's cost, by kind of work."""
    run = legs(trace, clock)
    return {kind: sum(leg.parts.get(kind, 0.0) for leg in run) / max(1, len(run)) for kind in ORDER}


def lost(trace: Trace, plain: Trace, clock: Clock) -> tuple[PassKind, dict[str, Value]] | None:
    """What makes a losing run's step dearer than a plain one's, in numbers; None for a run that did not lose."""
    if trace is plain or not fair(trace, plain, clock) or not 0 < speedup(trace, plain, clock) < EVEN:
        return None
    ours, theirs = mean_leg(trace, clock), mean_leg(plain, clock)
    kind = max(ORDER, key=lambda k: ours[k] - theirs[k])
    step = sum(ours.values())
    rows = max(len(one.draft.kept) for one in trace.steps[1:])
    share, ratio = f"{ours[kind] / step:.0%}", f"{step / sum(theirs.values()):.2f}"
    return kind, {"share": share, "ratio": ratio, "tau": f"{tau(trace):.2f}", "rows": rows}


def same_text(trace: Trace, plain: Trace) -> bool:
    """Greedy, and token for token plain decoding's."""
    return trace.header.sampling.temperature == 0 and ids(trace) == ids(plain)


class Lane:
    """One method's shapes, and what is visible of them at a moment."""

    def __init__(self, number: int, trace: Trace, plain: Trace | None, clock: Clock, scale: float, say: Say):
        self.trace, self.plain, self.number, self.say = trace, plain, number, say
        self.clock: Clock = clock
        self.key, self.y = trace.header.method.key, TOP + number * LANE
        self.legs = legs(trace, clock)
        self.scale = scale
        self.known = words(trace)
        self.parts = [self.leg(i) for i in range(len(self.legs))]
        self.shown = 0

    def name(self, what: str) -> str:
        return f"{self.key}.{self.number}.{what}"

    def fixed(self) -> list[Shape]:
        """What stands from the start: title, τ, speed."""
        title = Shape(self.name("title"), "text", 0, self.y + 13, look="title", hue=self.key, size=16)
        title.label = self.say("lane.title", {"key": self.key, "title": self.trace.header.method.title})
        facts = f"τ {tau(self.trace):.2f}"
        if self.plain is not None and fair(self.trace, self.plain, self.clock):
            facts += " · " + self.say("lane.speed", {"x": f"{speedup(self.trace, self.plain, self.clock):.2f}"})
        numbers = Shape(self.name("tau"), "text", 0, self.y + 30, label=facts, look="number", size=13)
        ground = Shape(self.name("ground"), "rect", 0, self.y - 4, LEFT - 10, LANE - 4, "plate")
        words_ = Shape(self.name("text"), "text", LEFT, self.y + 39, look="words", size=13)
        rule = Shape(self.name("rule"), "rect", 0, self.y + LANE - 5, WIDTH, 1, "rule")
        for shape in (ground, title, numbers):
            shape.layer = "margin"
        for shape in (ground, title, numbers, words_, rule):
            shape.on = True
        return [ground, title, numbers, words_, rule]

    def leg(self, i: int) -> list[Shape]:
        """A step: its bar in parts, and a dot for every token it brought, ink for the target's own."""
        leg, step = self.legs[i], self.trace.steps[i + 1]
        x, found = LEFT + leg.start * self.scale, []
        for kind in ORDER:
            w = leg.parts.get(kind, 0.0) * self.scale
            if w < 0.2:
                continue
            hue = self.key if kind in ("draft", "head") else ""
            look = f"time {kind}"
            found.append(
                Shape(
                    self.name(f"{i}{kind}"), "rect", round(x, 1), self.y, round(max(w - 0.6, 0.4), 1), BAR_H, look, hue
                )
            )
            x += w
        return found + self.dots(i, step)

    def dots(self, i: int, step: Step) -> list[Shape]:
        end, held = LEFT + self.legs[i].end * self.scale, accepted(step)
        count, pitch = len(step.committed), DOT + 1.5
        room = max((self.legs[i].end - self.legs[i].start) * self.scale, 4)
        pitch = min(pitch, room / count)
        found = []
        for place in range(count):
            own = place < held
            x = end - (count - place - 0.5) * pitch
            dot = Shape(self.name(f"{i}.{place}"), "dot", round(x, 1), self.y + BAR_H + 5, DOT, DOT, "token")
            dot.hue = self.key if own else ""
            found.append(dot)
        return found

    def at(self, moment: float) -> dict[str, dict[str, Value]]:
        """What becomes visible up to `moment`."""
        change: dict[str, dict[str, Value]] = {}
        before = self.shown
        while self.shown < len(self.legs) and self.legs[self.shown].end <= moment + 1e-9:
            change |= {shape.id: {"on": True} for shape in self.parts[self.shown]}
            self.shown += 1
        if self.shown > before or not moment:
            change[self.name("text")] = {"label": self.words()}
        return change

    def words(self) -> str:
        """The text so far in one line; its beginning goes when it does not fit."""
        tokens = [t for step in self.trace.steps[: self.shown + 1] for t in step.committed]
        stops = set(self.trace.header.stops)
        line = text_of([t for t in tokens if t not in stops], self.known).replace("\n", " ⏎ ")
        return fit_end(line, WIDTH - LEFT, 13.0)

    def verdict(self) -> list[Shape]:
        """What appears at the end: how long it took and, where it lost, why."""
        found = lost(self.trace, self.plain, self.clock) if self.plain else None
        return [self.finished(), self.result(), *([self.why(*found)] if found else [])]

    def result(self) -> Shape:
        """How fast it was, where the clock tells, and whether the text is plain decoding's own."""
        said = [self.say("lane.rate", {"x": f"{tokens_per_second(self.trace):.1f}"})] if self.clock == "ms" else []
        if self.plain and self.plain is not self.trace and same_text(self.trace, self.plain):
            said.append(self.say("lane.same", {}))
        x = LEFT + duration(self.trace, self.clock) * self.scale + 10
        label = fit(" · ".join(said), RIGHT - 10, 12, PROSE)
        return Shape(self.name("result"), "text", x, self.y + 26, label=label, look="muted", size=12)

    def why(self, kind: PassKind, numbers: dict[str, Value]) -> Shape:
        label = fit(self.say(f"lane.why.{kind}", numbers), WIDTH - LEFT, 12, PROSE)
        return Shape(self.name("why"), "text", LEFT, self.y + 51, label=label, look="muted", size=12)

    def finished(self) -> Shape:
        total = duration(self.trace, self.clock)
        label = self.say(f"lane.done.{self.clock}", {"value": amount(total, self.clock)})
        x = LEFT + total * self.scale + 10
        return Shape(
            self.name("done"), "text", x, self.y + 12, label=fit(label, RIGHT - 10, 13), look="number", size=13
        )


def amount(value: float, clock: Clock) -> str:
    """A clock reading as people say it."""
    if clock == "ms":
        return f"{value / 1000:.2f}"
    return f"{value:.0f}" if clock == "passes" else f"{value:.1f}"


def picture(traces: Sequence[Trace], clock: Clock, say: Say) -> Scene:
    """All lanes from the start to the last one's end."""
    longest = max((duration(trace, clock) for trace in traces), default=0.0) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / longest
    lanes = [Lane(i, trace, baseline(traces, trace), clock, scale, say) for i, trace in enumerate(traces)]
    shapes = [shape for lane in lanes for shape in lane.fixed()]
    height = TOP + len(lanes) * LANE
    now = Shape("now", "rect", LEFT, 18, 1.5, height - 30, "now", on=True, layer="front")
    reading = Shape("reading", "text", LEFT, 13, look="number", anchor="middle", on=True, layer="front")
    done = {lane.number: lane.verdict() for lane in lanes}
    shapes += [now, reading, *(s for lane in lanes for part in lane.parts for s in part)]
    shapes += [shape for verdict in done.values() for shape in verdict]
    frames = [moment(lanes, done, longest * i / SLICES, clock, scale, say) for i in range(SLICES + 1)]
    frames[0].stop = frames[-1].stop = True
    return Scene(WIDTH, height, shapes, frames)


def moment(lanes: list[Lane], done: dict[int, list[Shape]], time: float, clock: Clock, scale: float, say: Say) -> Frame:
    change: dict[str, dict[str, Value]] = {}
    for lane in lanes:
        before = lane.shown
        change |= lane.at(time)
        if before < lane.shown == len(lane.legs):
            change |= {shape.id: {"on": True} for shape in done[lane.number]}
    x = round(LEFT + time * scale, 1)
    label = say(f"lane.now.{clock}", {"value": amount(time, clock)})
    change |= {"now": {"x": x}, "reading": {"x": x, "label": label}}
    over = sum(lane.shown == len(lane.legs) for lane in lanes)
    sentence = say("lane.say", {"now": label, "over": over, "all": len(lanes)})
    return Frame(label, sentence, change, rest=SHOWN_MS / SLICES)
