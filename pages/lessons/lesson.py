"""What a lesson is: recorded runs, a scene made of them, and beats, each a thing to say at a moment of that scene."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pages.pictures.scene import Frame, Line, Question, Scene, Value
from spec_core.trace import Trace

Say = Callable[[str, Mapping[str, Value]], str]
Where = Callable[[Sequence[Trace], int], bool]  # the lesson's runs and the number of a step → whether it will do


def anywhere(runs: Sequence[Trace], step: int) -> bool:
    return True


@dataclass(frozen=True)
class Moment:
    """The first frame of that kind (and act) in a step that will do; `nth` counts on from it within that step."""

    kind: str
    where: Where = anywhere
    act: str = ""
    nth: int = 0

    def find(self, scene: Scene, runs: Sequence[Trace]) -> int | None:
        """The number of the frame, or None where these runs have no such moment."""
        good = [i for i, frame in enumerate(scene.frames) if self.fits(frame) and self.where(runs, frame.at)]
        same = [i for i in good if scene.frames[i].at == scene.frames[good[0]].at]
        return same[self.nth] if self.nth < len(same) else None

    def fits(self, frame: Frame) -> bool:
        return frame.kind == self.kind and frame.act == self.act


@dataclass(frozen=True)
class Beat:
    """One thing said. Its texts are lesson.<lesson>.<id>.{title,text}, with `task` and, where `right` names the option
    that holds (counted from 1, of `options`), .question, .option.1 … and .because too. values: fills placeholders."""

    id: str
    moment: Moment
    task: bool = False
    options: int = 0
    right: int = 0
    values: Callable[[Sequence[Trace], int], Mapping[str, Value]] = field(default=lambda runs, step: {})


@dataclass(frozen=True)
class Lesson:
    """cast: method and preset of each run, all of one prompt. scene: makes the picture of those runs."""

    key: str
    cast: tuple[tuple[str, str], ...]
    scene: Callable[[Sequence[Trace], Say], Scene]
    beats: tuple[Beat, ...]

    def play(self, runs: Sequence[Trace], say: Say) -> Scene | None:
        """The scene with its lines in the order of the beats; None where these runs lack one of the moments."""
        scene = self.scene(runs, say)
        places = [beat.moment.find(scene, runs) for beat in self.beats]
        found = [place for place in places if place is not None]
        if len(found) < len(places) or found != sorted(found):
            return None
        scene.lines = [self.line(b, i, scene, runs, say) for b, i in zip(self.beats, found, strict=True)]
        return scene

    def line(self, beat: Beat, frame: int, scene: Scene, runs: Sequence[Trace], say: Say) -> Line:
        values = beat.values(runs, scene.frames[frame].at)

        def text(part: str) -> str:
            return say(f"lesson.{self.key}.{beat.id}.{part}", values)

        question = None
        if beat.options:
            options = [text(f"option.{i + 1}") for i in range(beat.options)]
            question = Question(text("question"), options, beat.right - 1, text("because"))
        return Line(frame, text("title"), text("text"), text("task") if beat.task else "", question, beat.id)

    def choose(self, casts: Iterable[Sequence[Trace]], say: Say) -> tuple[Sequence[Trace], Scene] | None:
        """The first runs in which every moment is found, and their scene."""
        for runs in casts:
            if scene := self.play(runs, say):
                return runs, scene
        return None
