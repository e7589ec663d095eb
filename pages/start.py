"""What this is, in one screen: the idea, a recorded decode that already plays, and where to go from here."""

import streamlit as st

from pages.parts import cards, entry, recorded, scenes
from pages.parts.stage import stage
from pages.parts.text import t

SHOWN = 4  # steps of the recording that the first screen needs


entry.through_app()
st.title(t("start.title"), anchor=False)
st.markdown(t("start.lead"))
trace = recorded.opening()
if trace:
    scene = scenes.opening(trace, SHOWN)
    stage(scene, [trace.header.method.key], key="start", position=len(scene.frames) - 1, autoplay=True)
    st.caption(f"{cards.title(trace.header.method)} · {trace.header.prompt.text} · {cards.badge(trace, 'replay')}")
doors = st.columns(3)
DOORS = {"race": ("race", {}), "step": ("step", {}), "live": ("race", {"live": "1"})}
for door, (name, (page, query)) in zip(doors, DOORS.items(), strict=True):
    with door.container(border=True):
        st.page_link(f"pages/{page}.py", label=f"**{t(f'door.{name}')}**", query_params=query)
        st.caption(t(f"door.{name}.about"))
