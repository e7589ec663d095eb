"""Choices that stand in the address, so that a link opens exactly what its sender saw, in any language.

Streamlit's own binding writes the words on the button, which change with the language; this writes the value.
"""

from collections.abc import Sequence

import streamlit as st


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
    if st.query_params.get(key) != found:
        st.query_params[key] = found
    return found
