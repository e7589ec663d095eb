"""EAGLE-2: the same drafter; its tree grows where it is confident, and is cut back to a budget."""

from collections.abc import Mapping, Sequence

from pages.lessons.lesson import Beat, Lesson, Moment, Say
from pages.pictures import growth, twins
from pages.pictures import step as stepping
from pages.pictures.flow import liveliest
from pages.pictures.numbers import of_step
from pages.pictures.scene import Scene, Value, join, of_run, part
from spec_core.trace import Trace

JUDGED = ("target", "accept", "reject", "end", "commit")


def scene(runs: Sequence[Trace], say: Say) -> Scene:
    """How one tree grew, what the target said to it, and a fixed tree beside a grown one of the same size."""
    grown, fixed, same_size = runs
    number = liveliest(grown)
    whole = stepping.picture(grown, say)
    return join(
        {
            "growth": growth.picture(grown, number, say),
            "tree": part(whole, lambda frame: frame.at == number and frame.kind in JUDGED),
            "twins": of_run(1, twins.picture((fixed, same_size), say)),
        }
    )


def growing(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    """The step's numbers, and the knobs it was grown with."""
    return {**of_step(runs, number), **{name: value for name, value in runs[0].header.knobs.items()}}


def beside(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    """Two trees of one size: their passes and tokens, and what they won over the whole text."""
    return twins.compared(runs[1:])


LESSON = Lesson(
    key="eagle2",
    cast=(("eagle2", "published"), ("eagle", "published"), ("eagle2", "twin")),
    scene=scene,
    beats=(
        Beat("same", Moment("expand", act="growth"), values=growing),
        Beat("expand", Moment("expand", act="growth", nth=1), options=3, right=3, values=growing),
        Beat("choose", Moment("choose", act="growth"), task=True, values=growing),
        Beat("levels", Moment("last", act="growth"), values=growing),
        Beat("rerank", Moment("rerank", act="growth"), options=3, right=2, values=growing),
        Beat("prune", Moment("prune", act="growth"), values=growing),
        Beat("verdict", Moment("commit", act="tree"), values=growing),
        Beat("long", Moment("long", act="twins"), values=beside),
        Beat("broad", Moment("broad", act="twins"), options=3, right=1, values=beside),
        Beat("end", Moment("broadend", act="twins"), task=True, values=beside),
    ),
)
