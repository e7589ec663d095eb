"""Below a lesson: a method's published run beside runs recorded with one of its knobs turned, chosen by sliders.

Which runs there are is the method's own table of variants; a knob's slider offers the values that were recorded.
"""

from collections.abc import Callable

import streamlit as st

from pages.parts import cards, recorded, scenes, source
from pages.parts.address import note, restore
from pages.parts.stage import stage
from pages.parts.text import t
from spec_core.contract import Method
from spec_core.trace import Trace, accepted, depths, tau

PUBLISHED = "published"
Names = dict[int, str]  # a knob's value → the recording that has it


def knobs(method: Method) -> dict[str, Names]:
    """Every knob a variant turns, with all its recorded values, the published one among them."""
    found: dict[str, Names] = {}
    for name, variant in method.lessons.items():
        for knob, value in variant.knobs.items():
            found.setdefault(knob, {int(method.published[knob]): PUBLISHED})[int(value)] = name
    return {knob: dict(sorted(names.items())) for knob, names in found.items()}


def prompt_of(method: Method) -> str:
    """The prompt all its variants were recorded on."""
    return next(iter(method.lessons.values())).prompt


def section(key: str) -> dict[str, int]:
    """Sliders, the chosen run's picture, all runs as a table. Returns the knobs' values; none without recordings."""
    method = source.methods()[key]
    turned = knobs(method)
    prompt = prompt_of(method)
    runs = {name: recorded.recording(prompt, key, name) for names in turned.values() for name in names.values()}
    if not all(runs.values()):
        return {}
    st.subheader(t("turn.title"), anchor=False)
    st.markdown(t("turn.lead", {"prompt": t(f"trace.{prompt}")}))
    values = sliders(turned)
    name = next((names[values[knob]] for knob, names in turned.items() if names[values[knob]] != PUBLISHED), PUBLISHED)
    chosen = runs[name]
    if chosen:
        show(chosen, name)
    table(turned, {name: run for name, run in runs.items() if run})
    return values


def sliders(turned: dict[str, Names]) -> dict[str, int]:
    """One for each knob. They were turned one at a time, so moving one puts the others back."""
    row = st.container(horizontal=True, key="turn")
    found: dict[str, int] = {}
    for knob, names in turned.items():
        state = f"turn.{knob}"
        standard = published(names)
        restore(knob, one_of(names), standard, state)
        others = {f"turn.{other}": published(rest) for other, rest in turned.items() if other != knob}
        label = t(f"knob.{knob}")
        row.select_slider(label, list(names), key=state, on_change=put_back, args=(others,), width=340)
        found[knob] = note(knob, standard, str, state)
    return found


def published(names: Names) -> int:
    return next(value for value, name in names.items() if name == PUBLISHED)


def one_of(names: Names) -> Callable[[str], int]:
    def read(text: str) -> int:
        if int(text) not in names:
            raise ValueError(text)
        return int(text)

    return read


def put_back(others: dict[str, int]) -> None:
    for state, value in others.items():
        st.session_state[state] = value


def show(trace: Trace, name: str) -> None:
    """The run, resting where the first step's draft has been judged: it continues the same text in every run."""
    scene = scenes.step(trace)
    ends = [i for i, frame in enumerate(scene.frames) if frame.stop and frame.at == 1]
    stage(scene, [trace.header.method.key], f"turn-{name}", max(0, ends[0] - 1) if ends else 0, leads=False)
    st.caption(cards.badge(trace, "replay"))


def table(turned: dict[str, Names], runs: dict[str, Trace]) -> None:
    """All runs, a row each: what was turned, and what came of it."""
    rows = []
    for knob, names in turned.items():
        rows += [
            {t("turn.knob"): f"{t(f'knob.{knob}')} {value}", **numbers(runs[name])} for value, name in names.items()
        ]
    st.table(rows)


def numbers(trace: Trace) -> dict[str, str | int]:
    """What does not depend on the clock: tokens per step, steps, guesses, and how many of them held."""
    steps = trace.steps[1:]
    drafted = sum(max(depths(step.draft)) for step in steps)
    held = sum(map(accepted, steps))
    return {
        "τ": f"{tau(trace):.2f}",
        t("turn.steps"): len(steps),
        t("turn.drafted"): drafted,
        t("turn.held"): f"{held} ({held / max(1, drafted):.0%})",
    }
