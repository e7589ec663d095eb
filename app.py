"""The entry: page setup, navigation, the choice of language, and the runs that go on whatever page is open."""

from pathlib import Path

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from pages.lessons import ORDER
from pages.parts import lab, lecture, runs
from pages.parts.text import choose_language, t

ASSETS = Path(__file__).parent / "assets"

st.set_page_config(page_title="DraftScope", page_icon=str(ASSETS / "icon.svg"), layout="wide")
lecture.abide()
st.html(ASSETS / "page.css")
if lecture.presenting():
    st.html(ASSETS / "present.css")
PAGES = ("start", "race", "step", "latency", "about")
LIVE = ("race", "step")  # these show the runs themselves


def found(names: tuple[str, ...]) -> list[StreamlitPage]:
    there = [name for name in names if Path(__file__).with_name("pages").joinpath(f"{name}.py").exists()]
    return [
        st.Page(f"pages/{name}.py", title=t(f"nav.{name}"), url_path=name, default=name == PAGES[0]) for name in there
    ]


lessons = found(ORDER)
page = st.navigation({"": found(PAGES)} | ({t("nav.lessons"): lessons} if lessons else {}), position="top")
runs.catch_up()
lecture.curtain()
with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", key="topbar"):
    st.markdown("**DraftScope**", width="content")
    if page.url_path not in LIVE:
        runs.follow()
    if page.url_path != "latency":
        lab.follow()
    choose_language()
    lecture.enter()
lecture.leave()
page.run()
