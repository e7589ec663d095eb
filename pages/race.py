"""The race: one prompt, every method in its lane, on one axis, by a choice of clock."""

from collections.abc import Mapping

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts import cards, choice, entry
from pages.parts.address import keep, recall
from pages.parts.stage import stage
from pages.parts.text import t, t_or
from pages.pictures import lanes
from pages.pictures.scene import Value


def say(key: str, values: Mapping[str, Value]) -> str:
    """The picture's words; a method's own title stands in where nobody translated it."""
    if key == "lane.title":
        return t_or(f"method.{values['key']}.title", str(values["title"]))
    return t(key, values)


def choose_clock(place: DeltaGenerator) -> lanes.Clock:
    recall("clock", lanes.CLOCKS, lanes.CLOCKS[0])
    found = place.segmented_control(
        t("race.clock"), lanes.CLOCKS, required=True, format_func=lambda name: t(f"clock.{name}"), key="clock"
    )
    keep("clock", found)
    return found or lanes.CLOCKS[0]


entry.through_app()
st.title(t("race.title"), anchor=False)
left, middle, right = st.columns([5, 4, 5], vertical_alignment="bottom")
chosen = choice.runs(left, middle)
if chosen is None or not chosen.traces:
    st.info(t("stepping.empty"))
else:
    clock = choose_clock(right)
    st.caption(chosen.traces[0].header.prompt.text)
    scene = lanes.picture(chosen.traces, clock, say)
    keys = [trace.header.method.key for trace in chosen.traces]
    stage(scene, keys, key=f"race-{chosen.key}-{clock}", position=len(scene.frames) - 1, autoplay=True, wide=True)
    st.caption(t(f"clock.{clock}.about"))
    cards.draw(chosen.traces, chosen.origin)
