"""The lesson on losslessness. Below it: draws counted against the target's law, as recorded and made here and now."""

import streamlit as st

from pages.lessons.lossless import LESSON
from pages.parts import draws, entry
from pages.parts.lesson import lesson
from pages.parts.text import t

entry.through_app()
st.title(t("lossless.title"), anchor=False)
runs = lesson(LESSON)
draws.counted()
if runs:
    draws.bench(runs[0])
