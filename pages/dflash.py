"""The lesson on DFlash. Below it: the same prompt with other blocks and fewer layers, as recorded."""

import streamlit as st

from pages.lessons.dflash import LESSON
from pages.parts import entry
from pages.parts.lesson import lesson
from pages.parts.text import t

entry.through_app()
st.title(t("dflash.title"), anchor=False)
lesson(LESSON)
