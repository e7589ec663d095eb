"""A lesson as a page shows it: recorded runs of one prompt, their scene with what is said, the same step as a table."""

from collections.abc import Sequence

import streamlit as st

from pages.lessons.lesson import Lesson
from pages.parts import cards, code, handout, moment, recorded, twin
from pages.parts.address import note, one_of, restore
from pages.parts.choice import prompt_name
from pages.parts.lecture import locked
from pages.parts.once import once
from pages.parts.stage import stage
from pages.parts.text import say, t
from pages.pictures.scene import Scene
from spec_core.trace import Trace


def lesson(told: Lesson) -> Sequence[Trace]:
    """Show it. Returns the runs it is told with, for charts below it: none where no recordings fit."""
    view, row = st.container(), st.container(horizontal=True, vertical_alignment="bottom", key="controls")
    fits = prompts(told)
    first = next((prompt for prompt in fits if played(told, prompt)), None)
    if first is None:
        view.info(t("lesson.empty"))
        return ()
    asked = choose(told, fits, first) if len(fits) > 1 else first
    runs, scene = played(told, asked) or played(told, first) or ((), Scene(0, 0, [], []))
    if runs:
        with row:
            cards.asked(runs[0])
    with view:
        position = show(told, runs, scene)
    if not played(told, asked):
        row.caption(t("lesson.unfit", {"prompt": prompt_name(asked), "shown": prompt_name(first)}))
    below(handout.Shown(told.key, t(f"{told.key}.title"), runs, scene, position, "replay"))
    return runs


def prompts(told: Lesson) -> list[str]:
    """Those of which every run of the cast is recorded, the app's opening one first; nothing is read yet."""
    wanted = {prompt: [recorded.Recording(prompt, *part) for part in told.cast] for prompt in recorded.prompts()}
    there = [prompt for prompt, cast in wanted.items() if all(one.path.exists() for one in cast)]
    return sorted(there, key=lambda prompt: prompt != recorded.opening_prompt())


def played(told: Lesson, prompt: str) -> tuple[list[Trace], Scene] | None:
    """The runs of that prompt and their scene, or None where a moment is missing or a file is broken."""
    runs = [recorded.recording(prompt, *part) for part in told.cast]
    whole = [run for run in runs if run]
    scene = staged(told, whole) if len(whole) == len(runs) else None
    return (whole, scene) if scene else None


@once(32)
def staged(told: Lesson, runs: list[Trace]) -> Scene | None:
    return told.play(runs, say)


def choose(told: Lesson, fits: Sequence[str], first: str) -> str:
    """The reader's prompt. The address names it where it is not the lesson's own choice."""
    state = f"prompt.{told.key}"
    restore("trace", one_of(fits), first, state)
    st.selectbox(t("choice.prompt"), fits, format_func=prompt_name, key=state, disabled=locked("trace"))
    return note("trace", first, str, state)


def show(told: Lesson, runs: Sequence[Trace], scene: Scene) -> int:
    """The stage; returns the frame it rests at. With another prompt the reader stays at the beat that was shown."""
    key, beat = f"{told.key}-{'-'.join(run.header.id for run in runs)}", f"beat.{told.key}"
    opened = moment.opening(key, scene, scene.lines[0].frame if scene.lines else 0, st.session_state.get(beat, ""))
    hues = list(dict.fromkeys(run.header.method.key for run in runs))
    position = stage(scene, hues, f"lesson-{key}", opened.position, autoplay=not opened.asked, linked=True)
    moment.remember(position, scene)
    st.session_state[beat] = next((line.id for line in reversed(scene.lines) if line.frame <= position), "")
    return min(position, len(scene.frames) - 1)


def below(shown: handout.Shown) -> None:
    """The step at rest as a table, where the runs come from, and what can be taken away."""
    code.view(*shown.step, shown.scene, shown.position)
    twin.table(*shown.step)
    st.caption("  \n".join(dict.fromkeys(cards.badge(run, shown.origin) for run in shown.runs)))
    handout.offer(shown, twin.rows(*shown.step))
