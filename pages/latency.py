"""The latency lab: what a draft costs by its length, live or recorded; below it what follows from that."""

import streamlit as st

from pages.parts import charts, costs, entry, findings, lab, machines, source
from pages.parts.address import note, number, one_of, restore, some_of
from pages.parts.findings import badge
from pages.parts.machines import Machine
from pages.parts.text import t, t_or
from spec_core import measurement as timed

MOST = 31  # longest draft
SCALES = ("linear", "log")


def choose_machine(known: list[Machine]) -> Machine:
    names = {one.key: one.name for one in known}
    restore("machine", one_of(list(names)), known[0].key)
    if st.session_state.machine not in names:
        st.session_state.machine = known[0].key
    st.selectbox(t("lab.machine"), list(names), format_func=names.__getitem__, key="machine")
    key = note("machine", known[0].key, str)
    return next(one for one in known if one.key == key)


def slider(key: str, label: str, low: int, high: int, default: int, help: str | None = None) -> int:
    """A slider whose value stands in the address."""
    restore(key, number(int, low, high), default)
    st.slider(t(label), low, high, key=key, help=help)
    return note(key, default, str)


def choose_context(one: Machine | None) -> int:
    """One of the context lengths that were measured."""
    known = timed.contexts(one.measurement) if one else []
    if len(known) < 2:
        return known[0] if known else 0
    first = min(known, key=lambda n: abs(n - 256))
    restore("context", number(int, known[0], known[-1]), first)
    if st.session_state.context not in known:
        st.session_state.context = first
    st.select_slider(t("lab.context"), known, key="context")
    return note("context", first, str)


def choose_scale() -> bool:
    restore("scale", one_of(SCALES), SCALES[0])
    st.segmented_control(
        t("lab.scale"), SCALES, required=True, format_func=lambda name: t(f"scale.{name}"), key="scale"
    )
    return note("scale", SCALES[0], str) == "log"


def weights(one: Machine) -> str:
    """Which drafters were trained; latency is the same either way, and that is said."""
    head = one.measurement.setup
    if not head.untrained:
        return t("lab.trained", {"target": head.target.id})
    names = ", ".join(t_or(f"method.{key}.title", key) for key in head.untrained)
    return t("lab.random", {"target": head.target.id, "methods": names})


def verdicts(one: Machine, context: int) -> str:
    """The growth from 4 tokens to 8 and 16 of the curves something is claimed about."""
    said = []
    for line, ratio in timed.claims(one.measurement, context, source.methods()).items():
        eight = timed.growth(one.measurement, line, context, 4, 8)
        values = {"name": charts.name(line), "x": ratio.value, "bar": ratio.bar, "eight": eight or 0.0}
        mark = "✓" if ratio.holds else "✗"
        said.append(f"{mark} " + t("lab.claim.least" if ratio.better == "higher" else "lab.claim.most", values))
    return "  \n".join(said)


def draw(one: Machine, others: list[Machine], context: int, layers: int, mark: int, log: bool) -> None:
    """The chart and what is to be said of it at once."""
    behind = charts.near(one.measurement, context)
    chart = charts.latency(one.measurement, [m.measurement for m in others], behind, layers, mark, log)
    charts.show(chart, "latency")
    st.caption(f"{badge(one)} · {weights(one)}")
    st.markdown(verdicts(one, behind))
    charts.twin(chart, "latency")


def first_screen(known: list[Machine]) -> tuple[Machine | None, int, int]:
    """Controls at the left, the chart at the right; returns the machine shown, its context, and the layers."""
    now = lab.going_on()
    left, right = st.columns([3, 8], gap="medium")
    with left:
        one = choose_machine(known) if known else None
        layers = slider("layers", "lab.layers", 1, 5, 5)
        mark = slider("block", "lab.block", 2, MOST + 1, 16, t("lab.block.help")) - 1
        context = choose_context(one)
        log = choose_scale()
        lab.order(busy=now is not None)
        if now:
            st.button(t("lab.stop"), key="stop measuring", on_click=lab.stop, width="stretch")
    with right:
        lab.notice()
        view = st.empty()
    restore("others", some_of([m.key for m in known]), [])
    others = [m for m in known if m.key in st.session_state.others and m is not one]
    if now:
        lab.watch(view, lambda growing: draw(growing, [], context, layers, mark, log))
    elif one:
        with view.container():
            draw(one, others, context, layers, mark, log)
    else:
        view.info(t("lab.none"))
    return one, context, layers


def more_machines(known: list[Machine], one: Machine) -> None:
    """Overlay and files."""
    with st.expander(t("lab.overlay")):
        rest = [m for m in known if m is not one]
        if rest:
            names = {m.key: m.name for m in rest}
            restore("others", some_of(list(names)), [])
            st.session_state.others = [key for key in st.session_state.others if key in names]
            st.multiselect(
                t("lab.others"), list(names), format_func=names.__getitem__, key="others", placeholder=t("lab.pick")
            )
            note("others", [], ",".join)
        else:
            st.caption(t("lab.alone"))
        lab.files()
        raw = timed.file_bytes(one.measurement)
        st.download_button(t("lab.save"), raw, f"{one.key}.jsonl", "application/jsonl", on_click="ignore")


entry.through_app()
lab.adopt()
lab.settle()
st.title(t("lab.title"), anchor=False)
st.markdown(t("lab.lead"))
known = machines.machines()
one, context, layers = first_screen(known)
if one:
    more_machines(known, one)
    findings.where_time_goes(one, context, layers)
    findings.head_lesson(one)
    findings.what_if(one, context)
else:
    lab.files()
findings.sweep()
findings.acceptance()
if one:
    costs.section(one)
