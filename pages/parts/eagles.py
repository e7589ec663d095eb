"""Charts below the lessons on the EAGLE family, from all recordings of a method."""

from collections.abc import Sequence

import streamlit as st

from pages.parts import cards, charts
from pages.parts.findings import PUBLISHED, recordings, share_of
from pages.parts.text import t
from spec_core.trace import Trace, accepted_by_depth


def drafted(methods: Sequence[str]) -> dict[str, list[Trace]]:
    """Recordings with the papers' settings, by method, of those that are there."""
    return {key: found for key in methods if (found := recordings(key, PUBLISHED))}


def badge(found: dict[str, list[Trace]]) -> str:
    first = next(iter(found.values()))[0]
    return cards.badge(first, "replay")


def depths(methods: Sequence[str]) -> None:
    """Of the guesses put to the target at each depth, the share that held."""
    found = drafted(methods)
    if not found:
        return
    st.subheader(t("chart.title"), anchor=False)
    st.markdown(t("chart.lead"))
    curves = [share_of(key, charts.counts(accepted_by_depth(traces))) for key, traces in found.items()]
    chart = charts.shares(t("chart.x"), [curve for curve in curves if curve.points], unit=False)
    charts.show(chart, "depth")
    st.caption(badge(found))
    charts.twin(chart, "depth")
