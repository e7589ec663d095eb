"""The family: where each method stands, EAGLE-3 and DFlash row by row, and the words in both languages."""

import streamlit as st

from pages.parts import entry, family
from pages.parts.text import t

entry.through_app()
st.title(t("family.title"), anchor=False)
family.show()
