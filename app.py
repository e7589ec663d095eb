"""The entry: page setup, navigation and the choice of language."""

from pathlib import Path

import streamlit as st

from pages.parts.text import choose_language, t

ASSETS = Path(__file__).parent / "assets"

st.set_page_config(page_title="DraftScope", page_icon=str(ASSETS / "icon.svg"), layout="wide")
st.html(ASSETS / "page.css")
with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
    st.markdown("**DraftScope**", width="content")
    choose_language()
decode = st.Page("pages/decode.py", title=t("nav.decode"), url_path="decode", default=True)
st.navigation([decode], position="top").run()
