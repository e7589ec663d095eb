"""The lesson on EAGLE-2: expand, rerank, prune. Below it: one knob turned at a time, and what confidence is worth."""

import streamlit as st

from pages.lessons.eagle2 import LESSON
from pages.parts import eagles, entry
from pages.parts.lesson import lesson
from pages.parts.text import t

entry.through_app()
st.title(t("eagle2.title"), anchor=False)
if lesson(LESSON):
    eagles.turn("eagle2", ("tokens", "depth", "top_k"))
    eagles.confidence("eagle2")
