"""Why it pays at all: a target pass reads all weights for one token, and could check many guesses at that price."""

from collections.abc import Mapping, Sequence

from pages.lessons.lesson import Beat, Lesson, Moment, Say
from pages.pictures import step as stepping
from pages.pictures import traffic
from pages.pictures.scene import Scene, Value, join, of_run, part
from spec_core.trace import Step, Trace, accepted, text_of, words

DRAFTED, PLAIN = 0, 1  # places in the cast


def telling(step: Step) -> bool:
    """At least two guesses hold, then one is refused, and there are some behind it."""
    return accepted(step) >= 2 and len(step.draft.kept) - 1 >= accepted(step) + 2


def chosen(run: Trace) -> int:
    """The first step that tells it all, or the liveliest there is; in the very first the drafter reads the prompt."""
    numbers = range(2, len(run.steps))
    best = max(numbers, key=lambda n: accepted(run.steps[n]), default=0)
    return next((n for n in numbers if telling(run.steps[n])), best)


def scene(runs: Sequence[Trace], say: Say) -> Scene:
    """A plain step; what a step's tokens cost in weights read, alone and drafted; then that step itself."""
    plain, run = runs[PLAIN], runs[DRAFTED]
    number = chosen(run)
    one = part(stepping.picture(plain, say), lambda frame: frame.at == 1)
    whole = part(stepping.picture(run, say), lambda frame: frame.at == number)
    return join({"plain": of_run(PLAIN, one), "traffic": traffic.picture(run, number, say), "step": whole})


def values(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    """Of the step the lesson is told with."""
    run = runs[DRAFTED]
    step = run.steps[chosen(run)]
    held, known = accepted(step), words(run)

    def spelled(tokens: Sequence[int]) -> str:
        return text_of(tokens, known).strip()

    first = step.draft.tokens[1] if len(step.draft.tokens) > 1 else step.verdict.bonus
    refused = [n for n in step.draft.kept[1:] if step.draft.parents[n] == step.verdict.path[-1]]
    return {
        **traffic.numbers(run, chosen(run)),
        "held": held,
        "first": spelled([first]),
        "refused": spelled([step.draft.tokens[refused[0]]]) if refused else "",
        "bonus": spelled([step.verdict.bonus]),
        "lost": len(step.draft.kept) - 1 - held,
        "text": spelled(step.committed),
    }


LESSON = Lesson(
    key="why",
    cast=(("eagle3", "chain"), ("plain", "device")),
    scene=scene,
    beats=(
        Beat("plain", Moment("target", act="plain"), values=values),
        Beat("read", Moment("read", act="traffic"), task=True, values=values),
        Beat("again", Moment("again", act="traffic", nth=1), options=3, right=2, values=values),
        Beat("guess", Moment("guess", act="traffic"), values=values),
        Beat("check", Moment("check", act="traffic"), values=values),
        Beat("total", Moment("total", act="traffic"), values=values),
        Beat("grow", Moment("grow", act="step"), values=values),
        Beat("target", Moment("target", act="step"), task=True, values=values),
        Beat("accept", Moment("accept", act="step"), values=values),
        Beat("second", Moment("accept", act="step", nth=1), options=3, right=3, values=values),
        Beat("reject", Moment("reject", act="step"), task=True, values=values),
        Beat("bonus", Moment("commit", act="step"), options=3, right=1, values=values),
    ),
)
