"""Pure pictures: a trace goes in, a scene comes out. No torch, no streamlit, no randomness."""
