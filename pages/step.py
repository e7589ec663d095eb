"""Step through one decode: the picture of a finished run, moment by moment, with a table of the same step."""

from collections.abc import Mapping

import streamlit as st

from pages.parts import cards, choice, entry, live, runs
from pages.parts.stage import stage
from pages.parts.state import desk
from pages.parts.text import t
from pages.pictures import step as picture
from pages.pictures.scene import Scene, Value
from spec_core.trace import Step, Trace, depths, words


def say(key: str, values: Mapping[str, Value]) -> str:
    return t(key, values)


def resting(scene: Scene) -> int:
    """Where an untouched picture comes to rest: at the verdict of the second step, when there is something to see."""
    ends = [i for i, frame in enumerate(scene.frames) if frame.stop and frame.at == min(2, scene.frames[-1].at)]
    return max(0, ends[0] - 1) if ends else 0


def opening(trace: Trace, scene: Scene) -> int:
    """The frame to open at: the one in the address if this trace is the first one shown, else `resting`."""
    asked = st.session_state.setdefault("opened", (trace.header.id, st.query_params.get("at", "")))
    if asked[0] == trace.header.id and asked[1].isdecimal() and int(asked[1]) < len(scene.frames):
        return int(asked[1])
    return resting(scene)


def unasked() -> bool:
    """Nobody asked for a certain moment: show how the picture gets there."""
    return not st.session_state["opened"][1]


def remember(position: int) -> None:
    """The moment goes into the address, so that a link opens at it."""
    if st.query_params.get("at") != str(position):
        st.query_params["at"] = str(position)


def fate(step: Step, node: int) -> str:
    """What became of a node, as a word."""
    if node == 0:
        return t("fate.root")
    if node in step.verdict.path:
        return t("fate.accepted")
    if node not in step.draft.kept:
        return t("fate.pruned")
    return t("fate.rejected" if step.draft.parents[node] == step.verdict.path[-1] else "fate.left")


def table(trace: Trace, step: Step) -> None:
    """The same step for readers of tables and screen readers."""
    known, p = words(trace), dict(zip(step.draft.kept, step.verdict.p, strict=True))
    levels = depths(step.draft)
    rows = [
        {
            t("stepping.token"): picture.spell(known.get(token, f"<{token}>")),
            t("stepping.depth"): levels[i],
            t("stepping.pass"): step.draft.passes[i] + 1,
            t("stepping.q"): step.draft.probs[i],
            t("stepping.p"): p.get(i),
            t("stepping.fate"): fate(step, i),
        }
        for i, token in enumerate(step.draft.tokens)
    ]
    with st.expander(t("stepping.table")):
        st.dataframe(rows, hide_index=True, width="stretch")


entry.through_app()
runs.catch_up()
st.title(t("stepping.title"), anchor=False)
row = st.container(horizontal=True, vertical_alignment="bottom", key="controls")
asked = choice.prompt(row)
live.form(row, live.STEP)
chosen = choice.runs(asked, row, ("published", "device"))
live.status()
if chosen:
    trace = choice.one_of(chosen)
    scene = picture.picture(trace, say)
    place = opening(trace, scene)
    position = stage(scene, [trace.header.method.key], f"step-{trace.header.id}", place, autoplay=unasked())
    remember(position)
    table(trace, trace.steps[scene.frames[min(position, len(scene.frames) - 1)].at])
    st.caption(cards.badge(trace, chosen.origin))
    cards.save([trace])
elif not desk().todo:
    st.info(t("stepping.empty"))
