"""`python -m pages.parts.serve`: the app's server, started with what its first visitor's page needs already imported.

Streamlit runs app.py for the first time when somebody opens it; a third of a second of imports would then stand between
that reader and the first picture. `streamlit run app.py` works as well, only its first page comes that much later, and
it has neither /healthz nor /metrics nor the headers of a public server.
"""

import logging
import os
import sys
from pathlib import Path

APP = Path(__file__).parents[2] / "app.py"
# Streamlit's greeting would ask a server outside for this machine's address.
QUIET = {"server.headless": True, "logger.hideWelcomeMessage": True}

Setting = str | int | bool


def settings(options: list[str]) -> dict[str, Setting]:
    """--server.port 8600 or --server.port=8600 → Streamlit's settings."""
    rest = iter(options)
    found: dict[str, Setting] = {}
    for option in rest:
        name, given, word = option.removeprefix("--").partition("=")
        found[name] = value(word if given else next(rest))
    return found


def value(word: str) -> Setting:
    return int(word) if word.isdecimal() else {"true": True, "false": False}.get(word, word)


def public() -> dict[str, Setting]:
    """What a public server does not leave to Streamlit: no code in error messages, no big uploads or messages."""
    from pages.parts.hosting import rules

    here = rules()
    if not here.hosted:
        return {}
    sizes: dict[str, Setting] = {"server.maxUploadSize": here.trace_mb, "server.maxMessageSize": 32}
    return {"client.showErrorDetails": "none", "server.fileWatcherType": "none", **sizes}


def below() -> dict[str, Setting]:
    """DRAFTSCOPE_PATH: where on its site the app lies, such as `draftscope`; /healthz and /metrics stay at the root."""
    path = os.environ.get("DRAFTSCOPE_PATH", "").strip("/")
    return {"server.baseUrlPath": path} if path else {}


def log_to_stderr() -> None:
    """One JSON object a line, and nothing else on it."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("draftscope")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def main(options: list[str]) -> None:
    """Serve until stopped. options: Streamlit's own, such as --server.port 8600."""
    from starlette.middleware import Middleware
    from streamlit.starlette import App

    from pages.parts import source
    from pages.parts.routes import ROUTES, Guard, lifespan

    try:
        source.backend()
    except ValueError as error:
        raise SystemExit(str(error)) from None  # here and not on a reader's page
    log_to_stderr()
    sys.argv = [str(APP)]  # Streamlit puts the folder of what was started in front of all others
    app = App(APP, lifespan=lifespan, routes=ROUTES, middleware=[Middleware(Guard)])
    app.run(config={**QUIET, **public(), **below(), **settings(options)})


if __name__ == "__main__":
    main(sys.argv[1:])
