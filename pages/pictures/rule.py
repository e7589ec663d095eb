"""One guess on trial: the laws p and q as bars, the number u that decides, and what is drawn where the guess fails.

`reject` is for guesses really drawn from q; `match` asks the target for a token of its own and looks whether it was
guessed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pages.pictures.scene import Frame, Scene, Shape, Value, fit
from pages.pictures.step import spell
from spec_core.trace import Decision, Laws, Step, Trace, words

Say = Callable[[str, Mapping[str, Value]], str]
Change = dict[str, dict[str, Value]]

WIDTH, HEIGHT = 900.0, 356.0
LEFT, CHIP_W, BARS, FULL = 2.0, 118.0, 130.0, 320.0  # the tokens' width, where bars begin, how long probability 1 is
TOP, PITCH, THICK = 20.0, 46.0, 14.0
MOST = 7  # tokens shown
LISTED = 2  # guesses named in a line
RIGHT, LINE = 560.0, 330.0  # the trial beside the bars, and the length of the line u is drawn on
LINE_Y, LINE_H = 92.0, 28.0


@dataclass(frozen=True)
class Case:
    """A tested guess of a run: its step, and which of the step's questions it was."""

    step: int
    index: int


@dataclass(frozen=True)
class Trial:
    """A case with everything there is to say about it."""

    step: Step
    asked: Decision
    laws: Laws

    @property
    def token(self) -> int:
        return self.step.draft.tokens[self.asked.child]

    @property
    def ratio(self) -> float:
        return min(1.0, self.asked.p / self.asked.q) if self.asked.q else 1.0


def trial(trace: Trace, case: Case) -> Trial:
    step = trace.steps[case.step]
    return Trial(step, step.verdict.decisions[case.index], step.verdict.laws[case.index])


def cases(trace: Trace) -> list[Case]:
    """Every guess of the run that was tested with reject."""
    every = [(i, step) for i, step in enumerate(trace.steps) if step.verdict.laws]
    return [Case(i, place) for i, step in every for place, _ in enumerate(step.verdict.laws)]


def telling(trace: Trace) -> dict[str, Case]:
    """Of each outcome the case whose bars can be read best: p ≥ q accepted, p < q accepted, refused."""
    best: dict[str, tuple[float, Case]] = {}
    for case in cases(trace):
        name, worth = judged(trial(trace, case))
        if name not in best or worth > best[name][0]:
            best[name] = (worth, case)
    return {name: case for name, (_, case) in best.items()}


def judged(found: Trial) -> tuple[str, float]:
    """How a guess fared, and how well it can be seen: neither sure nor hopeless, and with a rest that is not tiny."""
    p, q = found.asked.p, found.asked.q
    if found.asked.accepted and p >= q:
        return "sure", q * (1 - q)
    if found.asked.accepted:
        return "luck", p * (1 - found.ratio)
    return "refused", p * max(found.laws.over, default=0.0)


def short(x: float) -> str:
    """A probability as people read it."""
    return f"{x:.2f}" if x >= 0.01 else f"{x:.1g}"


def numbers(trace: Trace, case: Case) -> dict[str, Value]:
    found, known = trial(trace, case), words(trace)

    def name(token: int) -> str:
        return spell(known.get(token, f"<{token}>"))

    return {
        "token": name(found.token),
        "p": short(found.asked.p),
        "q": short(found.asked.q),
        "u": short(found.asked.u or 0.0),
        "ratio": short(found.ratio),
        "percent": f"{found.ratio:.0%}" if found.ratio >= 0.01 else "< 1%",
        "bonus": name(found.step.verdict.bonus),
        "refusal": f"{sum(found.laws.over) + found.laws.rest[2]:.0%}",
    }


class Board:
    """Tokens with their bars at the left; what is added there is remembered by name."""

    def __init__(self, trace: Trace, tokens: Sequence[int], say: Say):
        self.known, self.hue, self.say = words(trace), trace.header.method.key, say
        self.tokens = list(tokens)
        self.shapes: list[Shape] = []
        for row, token in enumerate(self.tokens):
            self.add(self.chip(row, token))

    def name(self, token: int) -> str:
        return spell(self.known.get(token, f"<{token}>"))

    def y(self, row: int) -> float:
        return TOP + row * PITCH

    def add(self, *shapes: Shape) -> Change:
        self.shapes += shapes
        return {shape.id: {"on": True} for shape in shapes}

    def chip(self, row: int, token: int) -> Shape:
        label = fit(self.name(token), CHIP_W - 34, 15)
        return Shape(f"t{row}", "rect", LEFT, self.y(row), CHIP_W, 34, "chip", self.hue, label, on=True, size=15)

    def bars(self, name: str, values: Sequence[float], look: str, hue: str, dy: float) -> Change:
        """A bar and its number for every token that has one; -1 stands for none."""
        made: list[Shape] = []
        for row, value in enumerate(values):
            if value < 0:
                continue
            x, y = BARS + value * FULL, self.y(row) + dy
            made.append(Shape(f"{name}{row}", "rect", BARS, y, max(value * FULL, 1.5), THICK, look, hue))
            text = Shape(f"{name}n{row}", "text", x + 6, y + 12, look="number", label=f"{name} {short(value)}", size=14)
            made.append(text)
        return self.add(*made)

    def text(self, name: str, y: float, label: str, look: str = "number", size: float = 17) -> Change:
        room = WIDTH - RIGHT
        return self.add(Shape(name, "text", RIGHT, y, look=look, label=fit(label, room, size, 0.5), size=size))

    def mark(self, token: int, look: str, sign: str) -> Change:
        row = self.tokens.index(token)
        return {f"t{row}": {"look": look, "mark": sign}}


def rows_of(found: Trial) -> list[int]:
    """The tokens to show, as the laws list them: the guess, what was drawn instead, and the best of either law."""
    must = [found.token] + ([] if found.asked.accepted else [found.step.verdict.bonus])
    best = [token for token in found.laws.tokens if token not in must]
    shown = {*must, *best[: MOST - len(set(must))]}
    return [token for token in found.laws.tokens if token in shown]


def reject(trace: Trace, case: Case, say: Say) -> Scene:
    """The trial of one guess drawn from q, from the draw to the verdict and what follows from it."""
    return Rejecting(trace, case, say).scene()


class Rejecting:
    def __init__(self, trace: Trace, case: Case, say: Say):
        self.found, self.number, self.say = trial(trace, case), case.step, say
        self.values = numbers(trace, case)
        tokens = rows_of(self.found)
        self.board = Board(trace, tokens, say)
        self.at = [self.found.laws.tokens.index(token) for token in tokens]

    def law(self, values: Sequence[float]) -> list[float]:
        return [values[i] for i in self.at]

    def frame(self, kind: str, change: Change) -> Frame:
        said = self.say(f"rule.{kind}", self.values)
        return Frame(self.say("rule.headline", {"n": self.number}), said, change, at=self.number, kind=kind)

    def scene(self) -> Scene:
        frames = [self.drawn(), self.asked(), self.ratio(), self.dice(), self.verdict()]
        if not self.found.asked.accepted:
            frames += [self.over(), self.instead()]
        frames[-1].stop = True
        return Scene(WIDTH, HEIGHT, self.board.shapes, frames)

    def drawn(self) -> Frame:
        board = self.board
        change = board.bars("q", self.law(self.found.laws.q), "time draft law-q", board.hue, 19)
        change |= board.mark(self.found.token, "node pending guess", "")
        return self.frame("drawn", change | board.text("drawn", 30, self.say("rule.guess", self.values), "title", 18))

    def asked(self) -> Frame:
        return self.frame("asked", self.board.bars("p", self.law(self.found.laws.p), "time target law-p", "", 2))

    def ratio(self) -> Frame:
        """The line from 0 to 1, and the part of it on which the guess is accepted."""
        board, w = self.board, self.found.ratio * LINE
        line = Shape("line", "rect", RIGHT, LINE_Y, LINE, LINE_H, "node lost line")
        zone = Shape("zone", "rect", RIGHT, LINE_Y, max(w, 1.5), LINE_H, "node pending zone", board.hue)
        ends = [
            Shape(
                f"end{x}", "text", RIGHT + x * LINE, LINE_Y + LINE_H + 18, look="muted", label=str(x), anchor="middle"
            )
            for x in (0, 1)
        ]
        change = board.add(line, zone, *ends)
        return self.frame("ratio", change | board.text("share", 78, self.say("rule.share", self.values)))

    def dice(self) -> Frame:
        u = self.found.asked.u or 0.0
        x = RIGHT + u * LINE
        needle = Shape("needle", "rect", x - 1.5, LINE_Y - 6, 3, LINE_H + 12, "time target needle")
        label = Shape("u", "text", x, LINE_Y + LINE_H + 24, look="title", label=f"u = {short(u)}", size=16)
        label.anchor = "middle" if 0.12 < u < 0.88 else "start" if u <= 0.12 else "end"
        change = self.board.add(needle, label)
        change.update({"end0": {"on": False}, "end1": {"on": False}})
        return self.frame("dice", change)

    def verdict(self) -> Frame:
        held = self.found.asked.accepted
        look, sign = ("node accepted guess", "✓") if held else ("node rejected guess", "✕")
        change = self.board.mark(self.found.token, look, sign)
        kind = "held" if held else "refused"
        label = f"{sign} " + self.say(f"rule.short.{kind}", self.values)
        return self.frame(kind, change | self.board.text("verdict", 186, label, "title", 20))

    def over(self) -> Frame:
        """What p has over q, token by token, as a hollow end of p's bar."""
        made: list[Shape] = []
        for row, i in enumerate(self.at):
            q, over = self.found.laws.q[i], self.found.laws.over[i]
            if over * FULL >= 1:
                x, y = BARS + q * FULL, self.board.y(row) + 2
                made.append(Shape(f"o{row}", "rect", x, y, over * FULL, THICK, "node bonus over"))
        change = self.board.add(*made) | self.board.text("rest", 232, self.say("rule.rest", self.values))
        return self.frame("over", change)

    def instead(self) -> Frame:
        bonus = self.found.step.verdict.bonus
        change = self.board.mark(bonus, "node bonus instead", "★")
        return self.frame(
            "instead", change | self.board.text("instead", 268, "★ " + str(self.values["bonus"]), "title", 20)
        )


# match: the target names a token, and a guess holds if it is that one


def matched(trace: Trace) -> Case | None:
    """The accepted guess whose place was least certain, as far as the favourites recorded there tell."""
    found: list[tuple[float, Case]] = []
    for number, step in enumerate(trace.steps):
        for index, asked in enumerate(step.verdict.decisions):
            if asked.accepted and asked.rule == "match":
                found.append((asked.p * (1 - asked.p), Case(number, index)))
    return max(found, key=lambda pair: pair[0], default=(0.0, None))[1]


def match_numbers(trace: Trace, case: Case) -> dict[str, Value]:
    asked, known = trace.steps[case.step].verdict.decisions[case.index], words(trace)
    token = asked.drawn or 0
    guesses = beside(trace.steps[case.step], asked)[1]
    listed = [spell(known.get(guess, f"<{guess}>")) for guess in sorted(guesses, key=lambda guess: guess != token)]
    more = "" if len(listed) <= LISTED else " …"
    return {
        "token": spell(known.get(token, f"<{token}>")),
        "p": short(asked.p),
        "percent": f"{asked.p:.0%}",
        "guesses": ", ".join(f"“{guess}”" for guess in listed[:LISTED]) + more,
    }


def match(trace: Trace, case: Case, say: Say) -> Scene:
    """The target's law at a place, the token it draws from it, and that this had been guessed."""
    step = trace.steps[case.step]
    asked = step.verdict.decisions[case.index]
    p, guessed = beside(step, asked)
    tokens = sorted(p, key=lambda token: (token != asked.drawn, -p[token]))[:MOST]
    tokens.sort(key=lambda token: -p[token])
    board, values = Board(trace, tokens, say), match_numbers(trace, case)

    def frame(kind: str, change: Change) -> Frame:
        headline = say("rule.headline", {"n": case.step})
        return Frame(headline, say(f"rule.match.{kind}", values), change, at=case.step, kind=kind)

    marks: Change = {}
    for token in guessed.intersection(tokens):
        marks |= board.mark(token, "node pending guess", "")
    first = frame("guessed", marks | board.text("guessed", 30, say("rule.match.fixed", values), "title", 18))
    second = frame("law", board.bars("p", [p[token] for token in tokens], "time target law-p", "", 10))
    named = board.text("named", 92, say("rule.match.short", values), "title", 20)
    third = frame("named", board.mark(asked.drawn or 0, "node accepted guess", "✓") | named)
    third.stop = True
    return Scene(WIDTH, HEIGHT, board.shapes, [first, second, third])


def beside(step: Step, asked: Decision) -> tuple[dict[int, float], set[int]]:
    """The target's p of its favourites at that place and of everything guessed there; and what was guessed."""
    wanted = next(one for one in step.verdict.wanted if one.node == asked.node)
    own = dict(zip(step.draft.kept, step.verdict.p, strict=True))
    guesses = {step.draft.tokens[i]: own[i] for i in own if step.draft.parents[i] == asked.node}
    return dict(zip(wanted.tokens, wanted.probs, strict=True)) | guesses, set(guesses)
