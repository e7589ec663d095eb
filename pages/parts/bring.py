"""A drafter of the reader's own: a folder on this machine is looked at, and runs, or it is said why it cannot.

Not on a public server: there a path would be somebody else's.
"""

from typing import TYPE_CHECKING

import streamlit as st

from pages.parts import source
from pages.parts.hosting import rules
from pages.parts.live import FIRST, examples
from pages.parts.runs import said
from pages.parts.state import Order, desk
from pages.parts.text import t
from spec_core.trace import Sampling

if TYPE_CHECKING:
    from models.found import Found

TOKENS = 64


def section() -> None:
    """Ask for a folder; say what is in it; offer to decode with it."""
    if rules().hosted or not source.can_run():
        return
    st.subheader(t("bring.title"), anchor=False)
    st.markdown(t("bring.lead", {"target": source.TARGET}))
    with st.container(key="bring"), st.form("bring.form", border=False):
        folder = st.text_input(t("bring.folder"), key="bring.folder", placeholder=t("bring.hint"))
        st.form_submit_button(t("bring.look"), icon=":material/search:")
    if folder:
        answer(folder)


def answer(folder: str) -> None:
    """What was found, and why it does not fit where it does not."""
    try:
        with st.spinner(t("bring.reading")):
            found = source.examine(folder)
            describe(found)
            source.try_on(folder)
    except source.Problem as problem:
        st.error(said(problem.notice))
        return
    st.success(t("bring.fits", {"target": source.TARGET}))
    if st.button(t("bring.run"), type="primary", key="bring.run", disabled=bool(desk().todo)):
        begin(folder, found)


def describe(found: "Found") -> None:
    lines = [t("bring.kind", {"kind": found.title, "layout": found.layout})]
    lines += [t("bring.weights", {"numbers": f"{found.numbers:.1f}", "dtype": found.dtype, "files": found.files})]
    lines += [t("bring.sizes", {"hidden": found.hidden, "vocab": found.vocab})]
    lines += [t("bring.words", {"words": found.words})] if found.words else []
    lines += [t("bring.block", {"layers": found.layers, "block": found.block})] if found.block else []
    lines += [t(f"bring.remark.{key}") for key in found.remarks]
    st.markdown("\n".join(f"- {line}" for line in lines))


def begin(folder: str, found: "Found") -> None:
    """The first example by plain decoding and by every method this drafter serves, on the race page."""
    prompt = examples()[FIRST]
    keys = [key for key, method in source.methods().items() if method.network == found.kind or key == "plain"]
    try:
        ids = source.submit([order(key, prompt, found) for key in keys], folder)
    except source.Problem as problem:
        st.error(said(problem.notice))
        return
    desk().start(ids, prompt)
    st.switch_page("pages/race.py")


def order(key: str, prompt: str, found: "Found") -> Order:
    """With the published tree, and for a block the size it was trained with."""
    names = {knob.name for knob in source.methods()[key].knobs}
    knobs = {"block": found.block} if found.block and "block" in names else {}
    return Order(key, prompt, dict(knobs), Sampling(), min(TOKENS, rules().tokens))
