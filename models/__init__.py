"""The networks DraftScope decodes with, and what they need to be loaded."""
