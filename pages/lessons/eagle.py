"""EAGLE: the drafter goes on from the target's own feature, and hedges its guesses in a fixed tree."""

from collections.abc import Sequence

from pages.lessons.lesson import Beat, Lesson, Moment, Say
from pages.pictures import flow
from pages.pictures import step as stepping
from pages.pictures.numbers import of_step
from pages.pictures.scene import Scene, join, part
from spec_core.trace import Trace

LEVELS = 5  # of the published tree, one pass each


def scene(runs: Sequence[Trace], say: Say) -> Scene:
    """One lively step twice: its draft from the inside, then the tree that hangs on it and the target's verdict."""
    run = runs[0]
    number = flow.liveliest(run)
    tree = part(stepping.picture(run, say), lambda frame: frame.at == number)
    return join({"flow": flow.picture(run, number, say), "tree": tree})


LESSON = Lesson(
    key="eagle",
    cast=(("eagle", "published"),),
    scene=scene,
    beats=(
        Beat("why", Moment("read", act="flow"), values=of_step),
        Beat("feature", Moment("feature", act="flow"), values=of_step),
        Beat("embed", Moment("embed", act="flow"), options=3, right=2, values=of_step),
        Beat("shift", Moment("shift", act="flow"), values=of_step),
        Beat("layer", Moment("layer", act="flow"), values=of_step),
        Beat("head", Moment("head", act="flow"), task=True, values=of_step),
        Beat("back", Moment("back", act="flow"), values=of_step),
        Beat("chain", Moment("chain", act="flow"), options=3, right=3, values=of_step),
        Beat("hedge", Moment("grow", act="tree"), task=True, values=of_step),
        Beat("fixed", Moment("grow", act="tree", nth=LEVELS - 1), values=of_step),
        Beat("check", Moment("target", act="tree"), options=3, right=1, values=of_step),
        Beat("verdict", Moment("commit", act="tree"), task=True, values=of_step),
    ),
)
