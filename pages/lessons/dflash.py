"""DFlash: a block of masks filled in one pass, what every layer is told, who may look at whom, and what that saves."""

from collections.abc import Mapping, Sequence

from pages.lessons.lesson import Beat, Lesson, Moment, Say
from pages.pictures import block, mask, waiting
from pages.pictures import step as stepping
from pages.pictures.flow import liveliest
from pages.pictures.numbers import of_step
from pages.pictures.scene import Scene, Value, join, part
from spec_core.trace import Trace

FILLING = ("layer", "last", "head")  # frames of the block's picture in which slots get their guesses


def scene(runs: Sequence[Trace], say: Say) -> Scene:
    """One lively step from masks to verdict, the masks of attention on the way, and at last the clock."""
    run, other = runs
    number = liveliest(run)
    inside = block.picture(run, number, say)
    until = Trace(run.header, run.steps[: number + 1], run.end)
    acts = {
        "inside": part(inside, lambda frame: frame.kind not in FILLING),
        "mask": mask.picture(other, run, say),
        "fill": part(inside, lambda frame: frame.kind in FILLING),
        "check": part(stepping.picture(until, say), lambda frame: frame.at == number),
        "waiting": waiting.picture(other, run, say),
    }
    return join(acts)


def of_block(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    return block.numbers(runs[0], number)


def of_clock(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    return waiting.numbers(runs[1], runs[0])


LESSON = Lesson(
    key="dflash",
    cast=(("dflash", "published"), ("eagle3", "published")),
    scene=scene,
    beats=(
        Beat("blanks", Moment("masks", act="inside"), options=3, right=3, values=of_block),
        Beat("lend", Moment("feature", act="inside"), values=of_block),
        Beat("inject", Moment("inject", act="inside"), values=of_block),
        Beat("cache", Moment("cache", act="inside"), task=True, values=of_block),
        Beat("branch", Moment("branch", act="mask"), options=2, right=1, values=of_block),
        Beat("both", Moment("block", act="mask"), task=True, values=of_block),
        Beat("chain", Moment("check", act="mask"), values=of_block),
        Beat("first", Moment("layer", act="fill"), values=of_block),
        Beat("last", Moment("last", act="fill"), values=of_block),
        Beat("head", Moment("head", act="fill"), task=True, values=of_block),
        Beat("check", Moment("target", act="check"), values=of_step),
        Beat("verdict", Moment("commit", act="check"), values=of_step),
        Beat("clock", Moment("begin", act="waiting"), options=3, right=2, values=of_clock),
        Beat("stairs", Moment("pass", act="waiting"), values=of_clock),
        Beat("tall", Moment("block", act="waiting"), values=of_clock),
        Beat("point", Moment("compare", act="waiting"), task=True, values=of_clock),
    ),
)
