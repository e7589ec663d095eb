"""The lesson on why guessing pays. Below it: what further rows in a target pass cost, as measured."""

import streamlit as st

from pages.lessons.why import LESSON
from pages.parts import entry, rows
from pages.parts.lesson import lesson
from pages.parts.text import t

entry.through_app()
st.title(t("why.title"), anchor=False)
lesson(LESSON)
rows.section()
