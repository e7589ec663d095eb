"""The lesson on DFlash. Below it: the same prompt with other blocks and fewer layers, and what such drafts cost."""

import streamlit as st

from pages.lessons.dflash import LESSON
from pages.parts import cards, charts, entry, machines, turning
from pages.parts.findings import badge
from pages.parts.lesson import lesson
from pages.parts.text import t

CONTEXT = 256


def cost(layers: int, block: int) -> None:
    """The paper's figure, measured on the machine of the recordings: draft time against length."""
    known = machines.machines()
    with cards.fold("turn.cost") as part:
        if not part.open or not known:
            return
        one = known[0]
        st.markdown(t("turn.cost.lead"))
        behind = charts.near(one.measurement, CONTEXT)
        chart = charts.latency(one.measurement, [], behind, layers, block - 1, log=False)
        charts.show(chart, "turn")
        st.caption(badge(one))
        st.page_link("pages/latency.py", label=t("turn.lab"))


entry.through_app()
st.title(t("dflash.title"), anchor=False)
lesson(LESSON)
turned = turning.section(LESSON.key)
if turned:
    cost(turned["layers"], turned["block"])
