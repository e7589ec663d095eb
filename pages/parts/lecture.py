"""A link for a lecture: it opens this page at this moment, and takes controls away from the reader or holds them fast.

`hide` and `lock` in the address name controls with commas between them; what is no control's name is ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import streamlit as st

from pages.parts.address import put
from pages.parts.text import NAMES, in_address, t

# Where each control stands on the page, as a selector. The first five can also be held fast.
PLACES = {
    "trace": '.st-key-trace, [class*="st-key-prompt-"]',
    "method": ".st-key-method",
    "tuning": ".st-key-tuning",
    "clock": ".st-key-clock",
    "live": ".st-key-live",
    "twin": ".st-key-twin",
    "code": ".st-key-code",
    "save": ".st-key-save",
    "language": ".st-key-lang",
    "pages": '[data-testid="stHeader"], .st-key-topbar, .st-key-unpresent',
}
LOCKABLE = ("trace", "method", "tuning", "clock", "live")
COMMON = ("twin", "code", "save", "language", "pages")
ON = {
    "race": ("trace", "tuning", "clock", "live", "save", "language", "pages"),
    "step": ("trace", "tuning", "method", "live", *COMMON),
}
LESSON = ("trace", *COMMON)
STAYING = ("lang", "present", "hide", "lock")
RUNNING = ("job", "lab")  # what this server is doing for the reader
PASSING = ("hide", "lock", "present", "lang", "at", "job")  # what a link says anew, or cannot promise


@dataclass(frozen=True)
class Wishes:
    """What a lecturer wants of a link. language: "" leaves it to the reader's browser."""

    language: str = ""
    present: bool = False
    moment: bool = True
    hide: tuple[str, ...] = ()
    lock: tuple[str, ...] = ()


def link(base: str, now: Mapping[str, str], wishes: Wishes) -> str:
    """The address `base` with all choices of `now`, as the wishes say."""
    query = {key: value for key, value in now.items() if key not in PASSING}
    if now.get("trace") == "own" and "job" in now:  # runs that only this server has, for as long as it has them
        query["job"] = now["job"]
    if wishes.moment and "at" in now:
        query["at"] = now["at"]
    said = {"lang": wishes.language, "present": "1" if wishes.present else ""}
    said |= {"hide": ",".join(wishes.hide), "lock": ",".join(wishes.lock)}
    return f"{base}?{urlencode(query | {key: value for key, value in said.items() if value}, safe=',')}"


def abide() -> None:
    """On every page, first of all: a menu's link drops what stood in the address, and that was for the whole visit."""
    for key in STAYING:
        asked = st.query_params.get(key) or st.session_state.get(f"stay.{key}", "")
        if asked:
            st.session_state[f"stay.{key}"] = asked
            put(key, asked)


def presenting() -> bool:
    return st.query_params.get("present") == "1"


def present(on: bool) -> None:
    st.session_state["stay.present"] = "1" if on else ""
    put("present", st.session_state["stay.present"])


def enter() -> None:
    """The button that leaves the picture alone on the screen, in large type."""
    st.button(
        t("present"),
        key="present",
        icon=":material/present_to_all:",
        type="tertiary",
        help=t("present.help"),
        on_click=present,
        args=(True,),
    )


def leave() -> None:
    """The way back, faint in a corner of the picture; the Escape key is one too."""
    if presenting():
        st.button(
            t("present.leave"),
            key="unpresent",
            icon=":material/close_fullscreen:",
            type="tertiary",
            shortcut="Esc",
            on_click=present,
            args=(False,),
        )


def named(key: str) -> set[str]:
    """The controls that the address's `key` names."""
    return {name for name in st.query_params.get(key, "").split(",") if name in PLACES}


def locked(name: str) -> bool:
    return name in named("lock")


def curtain() -> None:
    """On every page: what is to be hidden is not shown, to nobody and no screen reader."""
    if hidden := sorted(named("hide")):
        st.html(f"<style>{', '.join(PLACES[name] for name in hidden)} {{ display: none !important; }}</style>")


def offer(page: str) -> None:
    """The button that opens the dialog. page: its name; a page that is not in `ON` is a lesson's."""

    @st.dialog(t("lecture"), width="medium")
    def dialog() -> None:
        st.markdown(t("lecture.lead"))
        wishes = ask(ON.get(page, LESSON))
        base = (st.context.url or "").split("?")[0]
        st.code(link(base, st.query_params.to_dict(), wishes), language=None, wrap_lines=True)
        st.caption(t("lecture.copy"))

    if st.button(t("lecture"), key="lecture", icon=":material/link:"):
        dialog()


def ask(controls: tuple[str, ...]) -> Wishes:
    """The lecturer's answers."""
    languages = ["", *NAMES]
    names = {"": t("lecture.browser"), **NAMES}
    language = st.segmented_control(
        t("language"), languages, format_func=names.__getitem__, default=in_address(), required=True
    )
    with st.container(horizontal=True):
        moment, present = st.toggle(t("lecture.moment"), value=True), st.toggle(t("lecture.present"))
    lock = choose("lock", tuple(name for name in controls if name in LOCKABLE))
    hide = choose("hide", controls)
    return Wishes(language or "", present, moment, hide, tuple(name for name in lock if name not in hide))


def choose(what: str, controls: tuple[str, ...]) -> tuple[str, ...]:
    """Which controls the link is to lock, or to hide."""
    label = t(f"lecture.{what}")
    return tuple(st.pills(label, controls, selection_mode="multi", format_func=lambda name: t(f"control.{name}")))
