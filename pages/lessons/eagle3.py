"""EAGLE-3: three layers fused, free outputs, a vocabulary of its own, trained on its own outputs; the wait stays."""

from collections.abc import Mapping, Sequence

from pages.lessons.lesson import Beat, Lesson, Moment, Say
from pages.pictures import beyond, flow, waiting
from pages.pictures import step as stepping
from pages.pictures.numbers import of_step, sizes
from pages.pictures.scene import Scene, Value, join, part
from spec_core.trace import Trace


def scene(runs: Sequence[Trace], say: Say) -> Scene:
    """A draft from the inside, its verdict, its wait beside that of EAGLE-2, and the text with what it cannot say."""
    run, before = runs
    number = flow.liveliest(run)
    verdict = part(stepping.picture(run, say), lambda frame: frame.at == number and frame.kind in ("target", "commit"))
    clocked = waiting.picture(before, run, say)
    clocked.frames[-1].say = say("eagle3.compare", waiting.numbers(before, run))
    return join(
        {
            "flow": flow.picture(run, number, say),
            "tree": verdict,
            "waiting": clocked,
            "text": beyond.picture(run, say),
        }
    )


def clock(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    """EAGLE-2's draft ends in 1, EAGLE-3's in 2."""
    old = sizes(runs[1])
    return {**waiting.numbers(runs[1], runs[0]), **sizes(runs[0]), "old_words": old["words"]}


def vocabulary(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    """How much of this text the drafter has no word for."""
    count = sum(len(step.committed) for step in runs[0].steps[1:])
    return {**sizes(runs[0]), "outside": beyond.beyond(runs[0]), "all": count}


LESSON = Lesson(
    key="eagle3",
    cast=(("eagle3", "published"), ("eagle2", "published")),
    scene=scene,
    beats=(
        Beat("limit", Moment("read", act="flow"), values=of_step),
        Beat("taps", Moment("feature", act="flow"), options=3, right=3, values=of_step),
        Beat("fuse", Moment("fuse", act="flow"), values=of_step),
        Beat("shift", Moment("shift", act="flow"), values=of_step),
        Beat("free", Moment("layer", act="flow"), values=of_step),
        Beat("head", Moment("head", act="flow"), task=True, values=of_step),
        Beat("own", Moment("back", act="flow"), options=3, right=1, values=of_step),
        Beat("verdict", Moment("commit", act="tree"), values=of_step),
        Beat("wait", Moment("begin", act="waiting"), values=clock),
        Beat("clock", Moment("compare", act="waiting"), options=2, right=2, values=clock),
        Beat("text", Moment("whole", act="text"), options=2, right=1, values=vocabulary),
        Beat("beyond", Moment("beyond", act="text"), task=True, values=vocabulary),
    ),
)
