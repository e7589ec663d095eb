"""Step through one decode: the picture of a finished run, moment by moment, with a table of the same step."""

import streamlit as st

from pages.parts import cards, choice, code, entry, handout, live, moment, runs, scenes, twin
from pages.parts.stage import stage
from pages.parts.state import desk
from pages.parts.text import t

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
    scene = scenes.step(trace)
    opened = moment.opening(trace.header.id, scene, moment.resting(scene))
    key = f"step-{trace.header.id}"
    position = stage(scene, [trace.header.method.key], key, opened.position, autoplay=not opened.asked, linked=True)
    moment.remember(position, scene)
    cards.asked(trace)
    place = min(position, len(scene.frames) - 1)
    shown = handout.Shown("step", t("stepping.title"), [trace], scene, place, chosen.origin)
    code.view(*shown.step, scene, place)
    twin.table(*shown.step)
    st.caption(cards.badge(trace, chosen.origin))
    handout.offer(shown, twin.rows(*shown.step))
elif not desk().todo:
    st.info(t("stepping.empty"))
