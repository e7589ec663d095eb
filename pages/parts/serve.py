"""`python -m pages.parts.serve`: the app's server, started with what its first visitor's page needs already imported.

Streamlit runs app.py for the first time when somebody opens it; a third of a second of imports would then stand between
that reader and the first picture. `streamlit run app.py` works as well, only its first page comes that much later.
"""

import sys
from importlib import import_module
from pathlib import Path

from streamlit.web import cli

APP = Path(__file__).parents[2] / "app.py"
OURS = ("pages.parts.runs", "pages.parts.stage", "pages.parts.recorded", "pages.pictures.step")
STREAMLITS = ("streamlit.emojis", "streamlit.elements.lib.image_utils", "numpy")  # it looks for icons in every label


def main(options: list[str]) -> None:
    """Serve until stopped. options: Streamlit's own, such as --server.port 8600."""
    for name in (*OURS, *STREAMLITS):
        import_module(name)
    sys.argv = ["streamlit", "run", str(APP), *options]
    cli.main()


if __name__ == "__main__":
    main(sys.argv[1:])
