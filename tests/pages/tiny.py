"""A lesson of three beats over the step picture, with everything a lesson may have; its texts beside it."""

from collections.abc import Mapping, Sequence

from pages.lessons.lesson import Beat, Lesson, Moment
from pages.pictures import step
from pages.pictures.scene import Value
from spec_core.trace import Trace


def rows(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    return {"rows": len(runs[0].steps[number].draft.kept)}


LESSON = Lesson(
    "tiny",
    (("eagle3", "device"),),
    lambda runs, say: step.picture(runs[0], say),
    (
        Beat("start", Moment("prefill")),
        Beat("guess", Moment("grow"), task=True),
        Beat("ask", Moment("target"), options=2, right=2, values=rows),
    ),
)
TEXTS = {
    "start.title": "A first token",
    "start.text": "The target has read the prompt.",
    "guess.title": "One guess",
    "guess.text": "The drafter makes a [guess](pending) beside the [root](root).",
    "guess.task": "Point at the guess.",
    "ask.title": "The target reads {rows} rows",
    "ask.text": "All of them in one pass.",
    "ask.question": "Does one pass cost as much as {rows} passes?",
    "ask.option.1": "Yes",
    "ask.option.2": "No",
    "ask.because": "Weights are read once for all rows.",
}
