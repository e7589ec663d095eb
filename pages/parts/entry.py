"""Makes a link to a page work on a server nobody has visited yet.

Until app.py has run once, Streamlit takes `pages/` for its older page system and runs the page alone, without the app's
navigation, language and look. A page that finds itself run so turns that off and asks to be run again.
"""

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager


def through_app() -> None:
    """First line of every page."""
    if PagesManager.uses_pages_directory:
        PagesManager.uses_pages_directory = False
        st.rerun()
