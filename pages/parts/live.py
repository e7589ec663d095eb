"""Run it live: the form a page folds away beside its choice of prompt, and what is seen of a run in hand."""

import json
from dataclasses import dataclass
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts import cards, choice, knobs, lecture, recorded, runs, source
from pages.parts.address import note, number, one_of, put, restore, some_of
from pages.parts.hosting import rules
from pages.parts.state import Notice, Order, desk
from pages.parts.text import t
from spec_core.contract import Method
from spec_core.trace import Sampling

EXAMPLES = Path(__file__).parents[2] / "assets" / "prompts" / "examples.json"
FIRST = "sky"  # the example that a form begins with
LINK = 1500  # characters of a prompt that an address should hold at most: some programs cut longer links


@dataclass(frozen=True)
class Form:
    """What a page lets its reader ask for: methods for a race, or one. preset: where the knobs start."""

    page: str
    many: bool
    preset: str


RACE = Form("race", many=True, preset="device")
STEP = Form("step", many=False, preset="published")


def form(place: DeltaGenerator, page: Form) -> None:
    """The button that unfolds the form. All of it rests while a run is going on."""
    fold_or_unfold()
    busy = bool(desk().todo)
    opened = st.session_state.live and not st.session_state.get("unfolded")
    if busy or opened or st.session_state.get("held"):
        hold(page)
    st.session_state.held, st.session_state.unfolded = busy, st.session_state.live
    shut = lecture.locked("live")
    with place.popover(t("live"), icon=":material/play_circle:", key="live", on_change="rerun", disabled=shut):
        prompt = choose_prompt(busy)
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            choose_example(busy)
            pressed = source.can_run() and st.button(t("run"), type="primary", key="run", disabled=busy)
        if not source.can_run():
            st.info(t("replay.only"))
        news = st.container()
        orders = choose_run(page, prompt, busy)
        choose_files(busy)
    if pressed:
        begin(orders, prompt)
        st.rerun()
    if st.session_state.live:
        news_in(news)


def fold_or_unfold() -> None:
    """Open where the address says so, shut once there is something to see behind it."""
    restore("live", "1".__eq__, False)
    if st.session_state.pop("fold", False):
        st.session_state.live = False
    put("live", "1" if st.session_state.live else "")


def hold(page: Form) -> None:
    """Say again to the widgets what they hold: when the form opens, while a run goes on and once after it.

    Streamlit tells a browser only once, and one whose form is shut does not listen. It also forgets, when a script asks
    for another run, what was typed in the moment of the press and what a link set.
    """
    fields = ("prompt", "tokens", "temp", "seed", "methods", "methods.one", f"preset.{page.page}")
    for key in (*fields, *knobs.keys()):
        if key in st.session_state:
            st.session_state[key] = st.session_state[key]


def examples() -> dict[str, str]:
    return {item["key"]: item["text"] for item in json.loads(EXAMPLES.read_text(encoding="utf-8"))}


def use_example() -> None:
    if st.session_state.example:
        st.session_state.prompt = examples()[st.session_state.example]


def choose_prompt(busy: bool) -> str:
    first = examples()[FIRST]
    restore("prompt", str, desk().prompt or first)
    text = st.text_area(t("prompt"), key="prompt", height=92, disabled=busy, placeholder=t("prompt.hint")) or ""
    note("prompt", first, lambda text: text if len(text) <= LINK else "")
    if len(text) > LINK:
        st.caption(t("prompt.long", {"most": LINK}))
    return text


def choose_example(busy: bool) -> None:
    st.pills(
        t("examples"),
        list(examples()),
        format_func=lambda key: t(f"example.{key}"),
        key="example",
        on_change=use_example,
        disabled=busy,
        label_visibility="collapsed",
    )


def choose_run(page: Form, prompt: str, busy: bool) -> list[Order]:
    """Everything but the prompt: which methods, how much, how drawn, and each method's knobs."""
    methods = choose_methods(busy) if page.many else [choose_method(busy)]
    left, middle, right = st.columns(3)
    budget = choose_tokens(left, busy)
    sampling = Sampling(temperature=choose_temperature(middle, busy), seed=choose_seed(right, busy))
    values = knobs.choose(methods, choose_preset(page, busy), busy)
    return [Order(method.key, prompt, values[method.key], sampling, budget) for method in methods]


def method_name(key: str) -> str:
    return cards.title(source.methods()[key].card)


def choose_methods(busy: bool) -> list[Method]:
    """The methods to run. Those whose drafter is missing can be chosen, and the run will say what is missing."""
    known = source.methods()
    ready = [key for key, method in known.items() if source.has_drafter(method)]
    restore("methods", some_of(list(known)), ready)
    chosen = st.pills(
        t("methods"),
        list(known),
        selection_mode="multi",
        wrap=True,
        format_func=method_name,
        key="methods",
        disabled=busy,
    )
    note("methods", ready, ",".join)
    return [method for key, method in known.items() if key in chosen]


def choose_method(busy: bool) -> Method:
    known = source.methods()
    first = choice.first_of([key for key, method in known.items() if source.has_drafter(method)])
    restore("methods", one_of(list(known)), first, state="methods.one")
    st.pills(
        t("method"),
        list(known),
        required=True,
        wrap=True,
        format_func=method_name,
        key="methods.one",
        disabled=busy,
    )
    return known[note("methods", first, str, state="methods.one")]


def choose_tokens(place: DeltaGenerator, busy: bool) -> int:
    most = rules().tokens
    restore("tokens", number(int, 8, most), 64)
    place.slider(t("tokens"), 8, most, step=4, disabled=busy, key="tokens", help=t("tokens.help"))
    return note("tokens", 64, str)


def choose_temperature(place: DeltaGenerator, busy: bool) -> float:
    restore("temp", number(float, 0, 1.5), 0.0)
    place.slider(t("temperature"), 0.0, 1.5, step=0.1, help=t("temperature.help"), disabled=busy, key="temp")
    return note("temp", 0.0, "{:g}".format)


def choose_seed(place: DeltaGenerator, busy: bool) -> int:
    restore("seed", number(int, 0, 2**31 - 1), 0)
    place.number_input(t("seed"), 0, 2**31 - 1, help=t("seed.help"), disabled=busy, key="seed")
    return note("seed", 0, str)


def choose_preset(page: Form, busy: bool) -> str:
    state = f"preset.{page.page}"
    restore("preset", one_of(choice.PRESETS), page.preset, state)
    choice.preset_control(st, t("preset"), choice.PRESETS, state, busy)
    return note("preset", page.preset, str, state)


def choose_files(busy: bool) -> None:
    with st.expander(t("open")):
        st.file_uploader(
            t("open.help"),
            accept_multiple_files=True,
            key="files",
            on_change=open_files,
            disabled=busy,
            max_upload_size=rules().trace_mb,
        )


def open_files() -> None:
    """Show the traces of the uploaded files instead of what is shown now, which stays if there are none."""
    traces, notices = [], []
    for file in st.session_state.files:
        try:
            traces.append(source.open_file(file.name, file.getvalue()))
        except source.Problem as problem:
            notices.append(problem.notice)
    if traces:
        runs.leave()
        desk().show(traces, "replay")
        st.session_state.fold = not notices
    desk().notices = notices


def begin(orders: list[Order], prompt: str) -> None:
    """Check what can be checked without a model, and have the rest run."""
    if not prompt.strip():
        desk().notices = [Notice("problem.empty", {})]
    elif len(prompt) > (most := rules().characters):
        desk().notices = [Notice("problem.characters", {"length": len(prompt), "most": most})]
    elif not orders:
        desk().notices = [Notice("problem.nothing", {})]
    elif runs.begin(orders, prompt):
        st.session_state.fold = True


def news_in(place: DeltaGenerator) -> None:
    """What went wrong, and what can be done about it."""
    for notice in desk().notices:
        place.error(runs.said(notice))
    if desk().broken and not desk().todo:
        place.button(t("again"), on_click=runs.try_again, key="again", icon=":material/replay:")
    if any(notice.key in runs.FULL for notice in desk().notices):
        place.button(t("recorded"), on_click=show_recorded, key="recorded", icon=":material/play_circle:")


def show_recorded() -> None:
    """What can be watched while all the runs are others'."""
    st.session_state.fold = True
    desk().notices = []
    if recorded.prompts():
        st.session_state.trace = recorded.prompts()[0]


def status() -> None:
    """What went wrong, unless the open form says it; then the run in hand, a way to stop it, its text so far."""
    if not st.session_state.live:
        news_in(st.container())
    if not desk().todo:
        return
    with st.container(horizontal=True, vertical_alignment="center", key="inhand"):
        bar = st.container(width="stretch").empty()
        st.button(t("stop"), on_click=runs.stop, key="stop", icon=":material/stop:")
    runs.watch(bar, st.empty())
