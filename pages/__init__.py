"""One script per page, run by Streamlit from top to bottom."""
