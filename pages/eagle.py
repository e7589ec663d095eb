"""The lesson on EAGLE: features, the shift by one, the fixed tree. Below it: how far ahead its guesses hold."""

import streamlit as st

from pages.lessons.eagle import LESSON
from pages.parts import eagles, entry
from pages.parts.lesson import lesson
from pages.parts.text import t

entry.through_app()
st.title(t("eagle.title"), anchor=False)
if lesson(LESSON):
    eagles.hedged("eagle", "chain")
    eagles.depths(("eagle",))
