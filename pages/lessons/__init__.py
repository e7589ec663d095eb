"""The lessons as data: what is shown, and what is said at which moment. No Streamlit, no torch."""
