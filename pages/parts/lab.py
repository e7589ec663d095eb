"""Measuring latency from the page: the order, the measurement going on, other machines' files. Its id stands in the
address (`lab=`), so a reload finds it again; what nobody looks at for a minute is given up."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts import runs, source
from pages.parts.address import put
from pages.parts.hosting import rules
from pages.parts.machines import Machine, bench
from pages.parts.state import Notice
from pages.parts.text import catalogue, t

if TYPE_CHECKING:
    from spec_core.job import Timing

AWAY = 10.0  # seconds between two looks from another page
PAUSE = 1.0  # seconds between two looks: drawing takes time from what is measured
OWN = ""  # the shape that is none: the app's own target
SHAPES = {"qwen3-4b": "Qwen3-4B", "qwen3-8b": "Qwen3-8B", "llama3.1-8b": "Llama-3.1-8B"}
CONTEXTS = (64, 256, 1024, 2048)


def adopt() -> None:
    """After a reload only the address knows what was being measured."""
    asked = st.query_params.get("lab", "")
    if asked and not bench().job and source.can_run() and source.timing(asked):
        bench().job = asked


def going_on() -> "Timing | None":
    """The measurement in hand as it is now; looking keeps it alive."""
    now = source.timing(bench().job) if bench().job else None
    return now if now and not now.over else None


def settle() -> None:
    """Before anything is drawn: one that is over goes to the other machines and is shown, or its failure is noted."""
    if not bench().job:
        return
    now = source.timing(bench().job)
    if now and not now.over:
        put("lab", bench().job)
        return
    bench().job = ""
    put("lab", "")
    if now is None:
        tell(Notice("lab.gone", {}))
        return
    if now.failure:
        tell(Notice(f"lab.{now.failure.kind}", now.failure.values))
    if now.state != "failed" and now.measurement and now.measurement.points:
        bench().add(now.measurement, "measured")
        st.session_state["machine"] = now.measurement.setup.id


def tell(notice: Notice | None) -> None:
    st.session_state["lab.notice"] = notice


def notice() -> None:
    """What went wrong last, in the reader's language."""
    said: Notice | None = st.session_state.get("lab.notice")
    if said:
        key = said.key if said.key in catalogue("en") else "lab.run"
        st.error(t(key, said.values))


def order(busy: bool) -> None:
    """What to measure, folded away: shape and context, and the button."""
    with st.popover(t("lab.measure"), icon=":material/timer:", width="stretch", key="measure"):
        if not source.can_run():
            st.info(t("lab.replay"))
            return
        st.caption(t("lab.measure.help"))
        names = {OWN: t("lab.shape.own"), **SHAPES}
        shape = st.selectbox(t("lab.shape"), list(names), format_func=names.__getitem__, key="shape", disabled=busy)
        context = st.select_slider(t("lab.context"), CONTEXTS, 256, key="measured context", disabled=busy)
        if st.button(t("lab.start"), type="primary", key="start", disabled=busy):
            begin(shape, context)
            st.rerun()


def begin(shape: str, context: int) -> None:
    tell(None)
    try:
        bench().job = source.measure(shape, context)
    except source.Problem as problem:
        tell(problem.notice)


def stop() -> None:
    """What was timed until now stays."""
    source.cancel(bench().job)


def watch(view: DeltaGenerator, draw: Callable[[Machine], None]) -> None:
    """Draw the measurement in hand now and every while; when it is over the page is drawn anew."""

    def look() -> None:
        now = going_on()
        if now is None:
            st.rerun()
        with view.container():
            progress(now)
            if now.measurement and any(task.method for task in now.measurement.points):
                draw(Machine(now.measurement.setup.id, now.measurement, "measured"))

    st.fragment(look, run_every=PAUSE)()


def follow() -> None:
    """On every other page: looking keeps the measurement alive, and a word tells that it goes on."""
    if not bench().job:
        return

    def look() -> None:
        now = going_on()
        if now is None:
            return
        share = now.measurement.done if now.measurement else 0.0
        st.caption(t("lab.elsewhere", {"share": share}), width="content")

    st.fragment(look, run_every=AWAY)()


def progress(now: "Timing") -> None:
    """How far it is, in words and as a bar."""
    if now.measurement:
        share = now.measurement.done
        st.progress(share, t("lab.progress", {"share": share, "timings": now.measurement.setup.timings}))
    else:
        said = {"position": now.position, **runs.about(now.wait)}
        st.progress(0.0, t(f"lab.{runs.waiting(now)}", said))


def files() -> None:
    """How another machine gets into the chart, and the place to put its file."""
    st.markdown(t("lab.other"))
    st.code("python -m spec_core.measure --json gpu.jsonl.gz", language=None)
    name = "files of machines"
    st.file_uploader(
        t("lab.open"), accept_multiple_files=True, key=name, on_change=take, max_upload_size=rules().lab_mb
    )


def take() -> None:
    """Put the uploaded measurements with the others; a bad file costs one sentence and loses nothing."""
    tell(None)
    for file in st.session_state["files of machines"]:
        try:
            bench().add(source.open_measurement(file.name, file.getvalue()), "replay")
        except source.Problem as problem:
            tell(problem.notice)
