"""Every word the app says, by key, in the reader's language. English fills in where a key is unknown elsewhere."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path

import streamlit as st

LOCALES = Path(__file__).parents[2] / "assets" / "locales"
NAMES = {"en": "English", "zh": "中文"}

Value = str | int | float


@functools.cache
def catalogue(language: str) -> dict[str, str]:
    """All texts of a language: one file for the app, one for each lesson."""
    files = sorted((LOCALES / language).glob("*.json"))
    return {key: text for file in files for key, text in json.loads(file.read_text(encoding="utf-8")).items()}


def choose_language() -> None:
    """The switch. A choice also goes into the address (?lang=zh), so that a link keeps its language."""
    first = st.session_state.setdefault("first_lang", language())  # a default that moves would reset the switch
    st.segmented_control(
        t("language"),
        list(NAMES),
        format_func=NAMES.__getitem__,
        default=first,
        required=True,
        key="lang",
        on_change=put_in_address,
        label_visibility="collapsed",
    )


def put_in_address() -> None:
    st.query_params["lang"] = st.session_state.lang


def language() -> str:
    """The language chosen; before anybody chose, the one in the address, or the browser's."""
    return st.session_state.get("lang") or in_address() or known(st.context.locale or "") or "en"


def in_address() -> str:
    """The language that `?lang=` asks for; "" where there is none, or one that nobody translated."""
    return known(st.query_params.get("lang", ""))


def known(tag: str) -> str:
    """A language's tag → ours: zh-CN is zh, as is zh_TW; "" for what nobody translated."""
    first = tag.lower().replace("_", "-").partition("-")[0]
    return first if first in NAMES else ""


def t(key: str, values: Mapping[str, Value] | None = None) -> str:
    """The text of `key` with its placeholders filled in."""
    found = catalogue(language()).get(key) or catalogue("en")[key]
    return found.format_map(values or {})


def t_or(key: str, own: str) -> str:
    """The text of `key`, or `own` where nobody translated it yet: a new method brings its own words."""
    return catalogue(language()).get(key, own)


def say(key: str, values: Mapping[str, Value]) -> str:
    """What pictures say; a method's own title stands in where nobody translated it."""
    if key == "lane.title":
        return t_or(f"method.{values['key']}.title", str(values["title"]))
    return t(key, values)
