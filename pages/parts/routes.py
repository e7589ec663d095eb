"""What the server answers beside the pages: its health, its counts, and the headers that keep a public page safe."""

import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.config import get_option

from pages.parts import source
from pages.parts.hosting import rules

# What the first visitor's page needs. Streamlit looks for icons in every label, hence its own modules.
OURS = ("pages.parts.runs", "pages.parts.stage", "pages.parts.recorded", "pages.pictures.step")
STREAMLITS = ("streamlit.emojis", "streamlit.elements.lib.image_utils", "numpy")
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
DRAIN = 25.0  # seconds that a run in hand gets when the server is told to go; DRAFTSCOPE_DRAIN sets others
# Streamlit's own pages need inline styles and scripts made from strings; nothing needs another server.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; base-uri 'self'"
)


async def healthz(request: Request) -> Response:
    """200 while runs are taken, or none can be made here; 503 while the server is going or its queue stands still."""
    now = source.load()
    said = {"status": now.status, "live": source.can_run(), "waiting": now.waiting, "running": now.running}
    return JSONResponse(said, 200 if now.status == "ok" else 503)


async def metrics(request: Request) -> Response:
    return PlainTextResponse(source.metrics(), media_type=OPENMETRICS)


ROUTES = [Route("/healthz", healthz), Route("/metrics", metrics)]


def headers() -> dict[str, str]:
    """DRAFTSCOPE_FRAMES: which sites may show the app in a frame, such as "'self' https://moodle.example.edu"."""
    frames = os.environ.get("DRAFTSCOPE_FRAMES", "'self'" if rules().hosted else "*")
    policy = f"{POLICY}; frame-ancestors {frames}" if rules().hosted else f"frame-ancestors {frames}"
    calm = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"}  # an address may hold a prompt
    return {"Content-Security-Policy": policy, **calm}


def foreign(scope: Scope) -> bool:
    """A connection that a page of another site opened. Streamlit would ask a server outside about it."""
    found = Headers(scope=scope)
    origin = found.get("origin")
    return bool(origin) and urlsplit(origin).netloc != found.get("host")


class Guard:
    """Sends the headers with every answer, and on a public server listens only to its own pages."""

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.headers, self.strict = app, headers(), rules().hosted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.strict and scope["type"] == "websocket" and foreign(scope):
            await send({"type": "websocket.close", "code": 1008})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        await self.app(scope, receive, with_headers if scope["type"] == "http" else send)


def log(said: dict[str, object]) -> None:
    logging.getLogger("draftscope.server").info(json.dumps(said))


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    """Import what the first page needs; when told to go, let runs in hand finish and hand back those that wait."""
    for name in (*OURS, *STREAMLITS):
        import_module(name)
    said = {"hosted": rules().hosted, "live": source.can_run(), "backend": source.backend()}
    log({"event": "start", **said, "port": get_option("server.port")})
    yield
    log({"event": "stop"})
    await to_thread.run_sync(source.close, float(os.environ.get("DRAFTSCOPE_DRAIN", DRAIN)))
