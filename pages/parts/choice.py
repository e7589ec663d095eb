"""What a page shows: the reader's own runs, or one of the recorded prompts. The choice stands in the address."""

from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts import recorded, source
from pages.parts.address import keep, recall
from pages.parts.cards import Origin, title
from pages.parts.lecture import locked
from pages.parts.state import desk
from pages.parts.text import t, t_or
from spec_core.trace import Trace

OWN = "own"
PRESETS = ("device", "published")


@dataclass(frozen=True)
class Choice:
    """Runs of one prompt. `key` names them, so that a picture knows when it is another one."""

    key: str
    traces: list[Trace]
    origin: Origin


def prompt_name(key: str) -> str:
    return t("choice.own") if key == OWN else t_or(f"trace.{key}", key)


def own() -> list[Trace]:
    """The runs on the desk that have something to see."""
    return [trace for trace in desk().traces if len(trace.steps) > 1]


def prompt(place: DeltaGenerator) -> str | None:
    """Own runs or a recorded prompt, as the reader chooses; None where there is nothing at all."""
    known = [OWN] * bool(own()) + recorded.prompts()
    if not known:
        return None
    if desk().fresh and own():  # what has just come is shown at once; the reader may turn away from it again
        st.session_state.trace, desk().fresh = OWN, False
    recall("trace", known, known[0])
    found = place.selectbox(
        t("choice.prompt"), known, format_func=prompt_name, key="trace", width="stretch", disabled=locked("trace")
    )
    return keep("trace", found)


def runs(asked: str | None, place: DeltaGenerator, presets: tuple[str, ...] = PRESETS) -> Choice | None:
    """The runs of that prompt, under a preset where they are recorded; None where there are none."""
    if asked is None:
        return None
    if asked == OWN:
        return Choice(f"{OWN}-{own()[0].header.id}", own(), desk().origin)
    preset = choose_tuning(place, presets)
    found = recorded.lanes(asked, preset, list(source.methods()))
    return Choice(f"{asked}-{preset}", found, "replay") if found else None


def choose_tuning(place: DeltaGenerator, presets: tuple[str, ...]) -> str:
    """A page begins with the first of its presets, whatever another page began with; a choice goes along."""
    if st.session_state.get("tuning.from") != presets[0]:
        st.session_state.pop("tuning", None)
        st.session_state["tuning.from"] = presets[0]
    recall("tuning", presets, presets[0])
    preset = keep("tuning", preset_control(place, t("tuning"), presets, "tuning", locked("tuning")))
    if preset == presets[0]:
        st.session_state["kept.tuning"] = ""  # nobody's choice
    return preset


def preset_control(place: Any, label: str, presets: tuple[str, ...], key: str, busy: bool = False) -> str | None:
    """place: a container, or the whole of streamlit for the one that is open."""
    return place.segmented_control(
        label,
        presets,
        required=True,
        format_func=lambda name: t(f"preset.{'this device' if name == 'device' else name}"),
        help=t("preset.help"),
        key=key,
        disabled=busy,
    )


def choose_method(names: dict[str, str]) -> str | None:
    return st.segmented_control(
        t("stepping.which"),
        list(names),
        format_func=names.__getitem__,
        required=True,
        label_visibility="collapsed",
        key="method",
        disabled=locked("method"),
    )


def first_of(methods: list[str]) -> str:
    """The method to begin with: the one the app opens with, else the last."""
    opening = recorded.opening_method()
    return opening if opening in methods else methods[-1]


def one_of(choice: Choice) -> Trace:
    """One of the runs, by its method."""
    names = {trace.header.method.key: title(trace.header.method) for trace in choice.traces}
    recall("method", list(names), first_of(list(names)))
    chosen = keep("method", choose_method(names))
    return next((trace for trace in choice.traces if trace.header.method.key == chosen), choice.traces[-1])
