"""One prompt through the chosen methods, one after another: the texts, what every run cost, and the proof."""

import json
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts import cards, entry, runs, source
from pages.parts.state import Desk, Notice, Order, desk
from pages.parts.text import t, t_or
from spec_core.contract import Knob, Method
from spec_core.presets import PRESETS, Preset, preset
from spec_core.trace import KnobValue, Sampling

EXAMPLES = Path(__file__).parents[1] / "assets" / "prompts" / "examples.json"


def examples() -> dict[str, str]:
    return {item["key"]: item["text"] for item in json.loads(EXAMPLES.read_text(encoding="utf-8"))}


def use_example() -> None:
    if st.session_state.example:
        st.session_state.prompt = examples()[st.session_state.example]


def choose_prompt(busy: bool) -> str:
    st.session_state.setdefault("prompt", desk().prompt or examples()["sky"])
    text = st.text_area(t("prompt"), key="prompt", height=104, disabled=busy, placeholder=t("prompt.hint"))
    st.pills(
        t("examples"),
        list(examples()),
        format_func=lambda key: t(f"example.{key}"),
        key="example",
        on_change=use_example,
        disabled=busy,
        label_visibility="collapsed",
    )
    return text


def choose_methods(busy: bool) -> list[Method]:
    """The methods to run. Those whose drafter is missing can be chosen, and the run will say what is missing."""
    known = source.methods()
    ready = [key for key, method in known.items() if source.has_drafter(method)]
    chosen = st.pills(
        t("methods"),
        list(known),
        selection_mode="multi",
        wrap=True,
        default=ready,
        format_func=lambda key: t_or(f"method.{key}.title", known[key].title),
        key="methods",
        disabled=busy,
    )
    return [method for key, method in known.items() if key in chosen]


def choose_sampling(busy: bool) -> Sampling:
    left, right = st.columns(2)
    warmth = left.slider(t("temperature"), 0.0, 1.5, 0.0, 0.1, help=t("temperature.help"), disabled=busy, key="warmth")
    seed = right.number_input(t("seed"), 0, 2**31 - 1, 0, help=t("seed.help"), disabled=busy, key="seed")
    return Sampling(temperature=warmth, seed=int(seed))


def choose_knobs(methods: list[Method], busy: bool) -> dict[str, dict[str, KnobValue]]:
    """Each method's knobs, from its card, standing where the preset puts them."""
    name: Preset | None = st.segmented_control(
        t("preset"),
        PRESETS[::-1],
        default="this device",
        required=True,
        format_func=lambda name: t(f"preset.{name}"),
        help=t("preset.help"),
        key="preset",
        disabled=busy,
    )
    with st.expander(t("knobs")):
        return {method.key: knobs_of(method, name or "published", busy) for method in methods}


def knobs_of(method: Method, name: Preset, busy: bool) -> dict[str, KnobValue]:
    start = preset(method, name)
    if method.knobs:
        st.markdown(f"**{t_or(f'method.{method.key}.title', method.title)}**")
    return {knob.name: knob_widget(method.key, knob, start[knob.name], name, busy) for knob in method.knobs}


def knob_widget(method: str, knob: Knob, value: KnobValue, preset: str, busy: bool) -> KnobValue:
    """A switch, a list or a slider, whichever the knob's kind asks for."""
    label, help_ = t_or(f"knob.{knob.name}", knob.name), t_or(f"knob.{method}.{knob.name}.help", knob.help)
    key = f"{method}.{knob.name}.{preset}"  # a preset has its own widgets, so choosing it moves them all
    if isinstance(value, bool):
        return st.toggle(label, value, key=key, help=help_, disabled=busy)
    if isinstance(value, str):
        place = knob.choices.index(value)
        words = {choice: t_or(f"choice.{choice}", choice) for choice in knob.choices}
        return st.selectbox(label, knob.choices, place, words.__getitem__, key=key, help=help_, disabled=busy)
    low, high = knob.low or 0, knob.high or 100
    if isinstance(value, int):
        return st.slider(label, int(low), int(high), value, key=key, help=help_, disabled=busy)
    return st.slider(label, float(low), float(high), value, key=key, help=help_, disabled=busy)


def open_files() -> None:
    """Show the traces of the uploaded files instead of what is shown now."""
    place = desk()
    traces, notices = [], []
    for file in st.session_state.files:
        try:
            traces.append(source.open_file(file.name, file.getvalue()))
        except source.Problem as problem:
            notices.append(problem.notice)
    if traces:
        runs.leave()
        place.show(traces, "replay")
    place.notices = notices


def begin(orders: list[Order], prompt: str) -> None:
    """Check what can be checked without a model, and have the rest run."""
    place = desk()
    if not prompt.strip():
        place.notices = [Notice("problem.empty", {})]
    elif not orders:
        place.notices = [Notice("problem.nothing", {})]
    else:
        runs.begin(orders, prompt)


def controls(place: Desk) -> DeltaGenerator:
    """The left column: what to run. All of it rests while a run is going on, except Stop. Returns where news go."""
    busy = bool(place.todo)
    prompt = choose_prompt(busy)
    button, news = st.empty(), st.container()
    methods = choose_methods(busy)
    budget = st.slider(t("tokens"), 8, 256, 64, 8, disabled=busy, key="tokens", help=t("tokens.help"))
    knobs = choose_knobs(methods, busy)
    sampling = choose_sampling(busy)
    if busy:
        button.button(t("stop"), width="stretch", on_click=runs.stop, key="stop")
    elif not source.can_run():
        button.info(t("replay.only"))
    elif button.button(t("run"), type="primary", width="stretch", key="run"):
        begin([Order(m.key, prompt, knobs[m.key], sampling, budget) for m in methods], prompt)
        st.rerun()
    with st.expander(t("open")):
        st.file_uploader(t("open.help"), accept_multiple_files=True, key="files", on_change=open_files, disabled=busy)
    return news


def results(place: Desk) -> DeltaGenerator:
    """The right column: what is finished. Returns the place above it, for the run in hand."""
    view, below = st.empty(), st.empty()
    below.empty()  # what an earlier run left here goes at once
    with below.container():
        if place.traces:
            cards.draw(place.traces, place.origin)
        elif not place.todo:
            cards.introduce([method.card for method in source.methods().values()])
    return view


entry.through_app()
runs.adopt()
runs.collect()
runs.put_in_address()
st.title(t("decode.title"), anchor=False)
st.markdown(t("decode.lead"))
left, right = st.columns([4, 7], gap="large")
with left:
    news = controls(desk())
for notice in desk().notices:
    news.error(t(notice.key, notice.values))
with right:
    view = results(desk())
if desk().todo:
    runs.watch(news.empty(), view)
