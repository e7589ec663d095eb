"""The lesson on EAGLE-3. Below it: how far ahead its guesses hold, and what its vocabulary leaves out."""

import streamlit as st

from pages.lessons.eagle3 import LESSON
from pages.parts import eagles, entry
from pages.parts.lesson import lesson
from pages.parts.text import t

entry.through_app()
st.title(t("eagle3.title"), anchor=False)
if lesson(LESSON):
    eagles.depths(("eagle2", "eagle3"))
    eagles.vocabulary("eagle3")
