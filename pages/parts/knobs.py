"""The knobs of the methods to be run: a widget each, where the preset puts it, and all that were turned in the address.

In the address: METHOD.KNOB:VALUE, with commas between them. What is no knob, or no value for it, is ignored.
"""

from contextlib import suppress

import streamlit as st

from pages.parts import source
from pages.parts.address import put
from pages.parts.cards import title
from pages.parts.text import t, t_or
from spec_core.contract import Knob, KnobError, Method
from spec_core.presets import Preset, preset
from spec_core.trace import KnobValue

NAMES: dict[str, Preset] = {"device": "this device", "published": "published"}  # as the address says it, as presets do
ABREAST = 3  # methods beside one another


def choose(methods: list[Method], name: str, busy: bool) -> dict[str, dict[str, KnobValue]]:
    """Values per knob per method key. name: the preset they start from."""
    turned: list[str] = []
    with st.expander(t("knobs")):
        places = st.columns(min(ABREAST, max(1, sum(bool(method.knobs) for method in methods))))
        found: dict[str, dict[str, KnobValue]] = {method.key: {} for method in methods}
        for i, method in enumerate(method for method in methods if method.knobs):
            with places[i % len(places)]:
                found[method.key] = of_method(method, name, busy, turned)
    put("knobs", ",".join(turned))
    return found


def of_method(method: Method, name: str, busy: bool, turned: list[str]) -> dict[str, KnobValue]:
    """The widgets of one method. What does not stand where the preset puts it is added to `turned`."""
    st.markdown(f"**{title(method.card)}**")
    start = preset(method, NAMES[name])
    values = {knob.name: widget(method.key, knob, start[knob.name], name, busy) for knob in method.knobs}
    turned += [f"{method.key}.{knob}:{word(value)}" for knob, value in values.items() if value != start[knob]]
    return values


def widget(method: str, knob: Knob, start: KnobValue, name: str, busy: bool) -> KnobValue:
    """A switch, a list or a slider, as the knob's kind asks. Every preset has its own: choosing one moves all."""
    label, help_ = t_or(f"knob.{knob.name}", knob.name), t_or(f"knob.{method}.{knob.name}.help", knob.help)
    key = f"{method}.{knob.name}.{name}"
    st.session_state.setdefault(key, remembered(name).get(key, start))
    if isinstance(start, bool):
        st.toggle(label, key=key, help=help_, disabled=busy)
    elif isinstance(start, str):
        words = {choice: t_or(f"choice.{choice}", choice) for choice in knob.choices}
        st.selectbox(label, knob.choices, format_func=words.__getitem__, key=key, help=help_, disabled=busy)
    else:
        kind = type(start)
        st.slider(label, kind(knob.low or 0), kind(knob.high or 100), key=key, help=help_, disabled=busy)
    value = remembered(name)[key] = st.session_state[key]
    return value


def remembered(name: str) -> dict[str, KnobValue]:
    """Values by widget key, kept while the widgets are not on the page; to begin with, those in the address."""
    if "knobs" not in st.session_state:
        asked = read(st.query_params.get("knobs", ""))
        st.session_state.knobs = {f"{knob}.{name}": value for knob, value in asked.items()}
    return st.session_state.knobs


def keys() -> list[str]:
    """The widgets drawn so far."""
    return list(st.session_state.get("knobs", {}))


def word(value: KnobValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read(text: str) -> dict[str, KnobValue]:
    """The address's words → values by METHOD.KNOB."""
    known = {f"{method.key}.{knob.name}": knob for method in source.methods().values() for knob in method.knobs}
    found: dict[str, KnobValue] = {}
    for knob, _, value in (item.partition(":") for item in text.split(",")):
        with suppress(KeyError, KnobError):
            found[knob] = known[knob].read(value)
    return found
