"""The lessons as data: what is shown, and what is said at which moment. No Streamlit, no torch."""

ORDER = ("why", "eagle", "eagle2", "eagle3", "dflash", "lossless", "family")  # those of them that are there
