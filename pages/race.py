"""The race: one prompt, every method in its lane, on one axis, by a choice of clock."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts import cards, choice, entry, handout, lecture, live, moment, runs, scenes
from pages.parts.address import keep, recall
from pages.parts.stage import stage
from pages.parts.state import desk
from pages.parts.text import t
from pages.pictures import lanes


def choose_clock(place: DeltaGenerator) -> lanes.Clock:
    recall("clock", lanes.CLOCKS, lanes.CLOCKS[0])
    found = place.segmented_control(
        t("race.clock"),
        lanes.CLOCKS,
        required=True,
        format_func=lambda name: t(f"clock.{name}"),
        key="clock",
        disabled=lecture.locked("clock"),
    )
    keep("clock", found)
    return found or lanes.CLOCKS[0]


entry.through_app()
runs.catch_up()
st.title(t("race.title"), anchor=False)
row = st.container(horizontal=True, vertical_alignment="bottom", key="controls")
asked = choice.prompt(row)
live.form(row, live.RACE)
chosen = choice.runs(asked, row)
clock = choose_clock(row)
live.status()
if chosen:
    cards.asked(chosen.traces[0])
    scene = scenes.race(chosen.traces, clock)
    keys = [trace.header.method.key for trace in chosen.traces]
    over = not desk().todo
    last = len(scene.frames) - 1
    key = f"race-{chosen.key}-{clock}"
    opened = moment.opening(key, scene, last)
    place = stage(scene, keys, key, opened.position, autoplay=over and not opened.asked, wide=True, linked=True)
    moment.remember(place, scene)
    st.caption(t(f"clock.{clock}.about"))
    shown = handout.Shown("race", t("race.title"), chosen.traces, scene, min(place, last), chosen.origin, wide=True)
    handout.offer(shown, cards.numbers_table(chosen.traces))
    cards.draw(chosen.traces, chosen.origin)
elif not desk().todo:
    st.info(t("stepping.empty"))
