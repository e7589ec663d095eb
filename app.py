"""The entry: page setup, navigation and the choice of language."""

from pathlib import Path

import streamlit as st

from pages.parts.text import choose_language, t

ASSETS = Path(__file__).parent / "assets"

st.set_page_config(page_title="DraftScope", page_icon=str(ASSETS / "icon.svg"), layout="wide")
st.html(ASSETS / "page.css")
with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", key="topbar"):
    st.markdown("**DraftScope**", width="content")
    choose_language()
decode = st.Page("pages/decode.py", title=t("nav.decode"), url_path="decode", default=True)
race = st.Page("pages/race.py", title=t("nav.race"), url_path="race")
step = st.Page("pages/step.py", title=t("nav.step"), url_path="step")
st.navigation([decode, race, step], position="top").run()
