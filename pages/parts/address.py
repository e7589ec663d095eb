"""Choices that stand in the address, so that a link opens exactly what its sender saw, in any language.

Streamlit's own binding writes the words on the button, which change with the language; this writes the value.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import streamlit as st

Value = TypeVar("Value")


def recall(key: str, options: Sequence[str], default: str) -> None:
    """Before the widget `key` is drawn: give it what the address asks for, what it had before, or `default`."""
    if st.session_state.get(key) in options:
        return
    asked = (st.query_params.get(key), st.session_state.get(f"kept.{key}"), default)
    st.session_state[key] = next(value for value in asked if value in options)


def keep(key: str, value: str | None) -> str:
    """After the widget: its value goes into the address, and stays known while other pages are open."""
    found = value or st.session_state[f"kept.{key}"]
    st.session_state[f"kept.{key}"] = found
    put(key, found)
    return found


def restore(key: str, read: Callable[[str], Value], default: Value, state: str = "") -> None:
    """`recall` for values of any kind.

    read: what the address says → a value, or ValueError where it is none, which is then ignored. state: the widget's
    key where it is not the address's.
    """
    place = state or key
    if place in st.session_state:
        return
    st.session_state[place] = st.session_state.get(f"kept.{place}", default)
    if key in st.query_params:
        with suppress(ValueError):
            st.session_state[place] = read(st.query_params[key])


def note(key: str, default: Value, write: Callable[[Value], str], state: str = "") -> Value:
    """`keep` for values of any kind; the address leaves out what stands at its default."""
    value = st.session_state[f"kept.{state or key}"] = st.session_state[state or key]
    put(key, "" if value == default else write(value))
    return value


def put(key: str, text: str) -> None:
    """Write `text` into the address, or take `key` out of it where there is none."""
    if st.query_params.get(key, "") == text:
        return
    if text:
        st.query_params[key] = text
    else:
        st.query_params.pop(key, None)


def one_of(options: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in options:
            raise ValueError(text)
        return text

    return read


def a_number_of(steps: Sequence[int]) -> Callable[[str], int]:
    def read(text: str) -> int:
        return steps[steps.index(int(text))]

    return read


def some_of(options: Sequence[str]) -> Callable[[str], list[str]]:
    """Words with commas between them; unknown ones are left out, and none at all is an error."""

    def read(text: str) -> list[str]:
        found = [option for option in options if option in text.split(",")]
        if not found:
            raise ValueError(text)
        return found

    return read


def number(kind: Callable[[str], Value], low: float, high: float) -> Callable[[str], Value]:
    """A number of that kind, from low to high."""

    def read(text: str) -> Value:
        found = kind(text)
        if not low <= found <= high:  # type: ignore[reportOperatorIssue]
            raise ValueError(text)
        return found

    return read
