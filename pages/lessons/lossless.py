"""Why guessing changes nothing: the same text where the target takes its best token, the same law where it draws."""

from collections.abc import Mapping, Sequence

from pages.lessons.lesson import Beat, Lesson, Moment, Say
from pages.pictures import rule, same
from pages.pictures.scene import Scene, Value, join, of_run
from spec_core.trace import Trace, ids, tau

DRAWN, WARM, GREEDY = 0, 1, 2  # the first runs of the cast; greedy ones from the third on
OUTCOMES = ("sure", "luck", "refused")


def scene(runs: Sequence[Trace], say: Say) -> Scene:
    """All texts side by side; a token the target draws; then three guesses drawn from q on trial."""
    acts = {"same": of_run(GREEDY, same.picture(runs[GREEDY:], say))}
    if case := rule.matched(runs[WARM]):
        acts["match"] = of_run(WARM, rule.match(runs[WARM], case, say))
    found = rule.telling(runs[DRAWN])
    acts |= {name: rule.reject(runs[DRAWN], found[name], say) for name in OUTCOMES if name in found}
    return join(acts)


def text(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    """Of the greedy runs."""
    drafting = [run for run in runs[GREEDY:] if run.header.drafter]
    taus = sorted(map(tau, drafting))
    tokens = len(ids(runs[GREEDY]))
    return {"tokens": tokens, "methods": len(runs) - GREEDY, "low": f"{taus[0]:.2f}", "high": f"{taus[-1]:.2f}"}


def match(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    case = rule.matched(runs[WARM])
    return rule.match_numbers(runs[WARM], case) if case else {}


def of(name: str, runs: Sequence[Trace]) -> Mapping[str, Value]:
    return rule.numbers(runs[DRAWN], rule.telling(runs[DRAWN])[name])


def sure(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    return of("sure", runs)


def luck(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    return of("luck", runs)


def refused(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    return of("refused", runs)


LESSON = Lesson(
    key="lossless",
    cast=(
        ("eagle3", "sampled"),
        ("eagle3", "warm"),
        ("plain", "device"),
        ("lookup", "device"),
        ("eagle", "device"),
        ("eagle2", "device"),
        ("eagle3", "device"),
        ("dflash", "device"),
        ("ddtree", "device"),
    ),
    scene=scene,
    beats=(
        Beat("compare", Moment("compare", act="same"), options=3, right=2, values=text),
        Beat("equal", Moment("equal", act="same"), task=True, values=text),
        Beat("warm", Moment("law", act="match"), values=match),
        Beat("match", Moment("named", act="match"), options=3, right=3, values=match),
        Beat("drawn", Moment("drawn", act="sure"), values=sure),
        Beat("asked", Moment("asked", act="sure"), values=sure),
        Beat("sure", Moment("held", act="sure"), task=True, values=sure),
        Beat("luck", Moment("asked", act="luck"), options=4, right=3, values=luck),
        Beat("dice", Moment("held", act="luck"), values=luck),
        Beat("refused", Moment("refused", act="refused"), options=3, right=2, values=refused),
        Beat("over", Moment("over", act="refused"), values=refused),
        Beat("instead", Moment("instead", act="refused"), task=True, values=refused),
    ),
)
