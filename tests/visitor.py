"""A reader without a browser: speaks Streamlit's protocol over a websocket, so that a hall full of them is possible."""

import asyncio
import html
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import ClientConnection, connect

DONE = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY)
TEXT = re.compile(r'<div class="ds-text"[^>]*>(.*?)</div>', re.DOTALL)


class Broken(Exception):
    """The app complained, or went away."""


@dataclass
class Visitor:
    """One session on one page. laps: seconds from every request for a rerun until it was finished."""

    page: str = "race"
    query: str = "lang=en"
    laps: list[float] = field(default_factory=list[float])
    elements: dict[tuple[int, ...], Any] = field(default_factory=dict[tuple[int, ...], Any])
    widgets: dict[str, WidgetState] = field(default_factory=dict[str, WidgetState])
    fragments: dict[str, float] = field(default_factory=dict[str, float])
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    line: ClientConnection | None = None
    reader: asyncio.Task[None] | None = None
    partial: bool = False
    fault: str = ""

    async def arrive(self, address: str) -> "Visitor":
        stream = address.replace("http", "ws", 1) + "/_stcore/stream"
        self.line = await connect(stream, subprotocols=["streamlit"], origin=address, max_size=None, open_timeout=60)  # type: ignore[arg-type]
        self.reader = asyncio.create_task(self.listen())
        await self.rerun()
        return self

    async def leave(self) -> None:
        if self.line:
            await self.line.close()
        if self.reader:
            with suppress(asyncio.CancelledError):
                await self.reader

    async def listen(self) -> None:
        assert self.line
        try:
            async for raw in self.line:
                self.hear(ForwardMsg.FromString(raw if isinstance(raw, bytes) else raw.encode()))
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"
        self.fault = self.fault or "the server hung up"
        self.finished.set()

    def hear(self, message: ForwardMsg) -> None:
        kind = message.WhichOneof("type")
        if kind == "new_session":
            if not self.partial:
                self.elements, self.fragments = {}, {}
            self.partial = False  # a fragment may ask for a whole rerun, which then follows
        elif kind == "delta":
            self.take(tuple(message.metadata.delta_path), message.delta)
        elif kind == "auto_rerun":
            self.fragments[message.auto_rerun.fragment_id] = message.auto_rerun.interval
        elif kind == "page_info_changed":
            self.query = message.page_info_changed.query_string
        elif kind == "script_finished" and message.script_finished in DONE:
            self.finished.set()

    def take(self, path: tuple[int, ...], delta: Delta) -> None:
        if delta.WhichOneof("type") == "new_element":
            name = delta.new_element.WhichOneof("type")
            self.elements[path] = getattr(delta.new_element, name) if name else None
            if name == "exception":
                self.fault = f"{delta.new_element.exception.type}: {delta.new_element.exception.message}"

    async def rerun(self, pressed: str = "", fragment: str = "") -> None:
        """Ask for a rerun, wait for its end, and note how long that took."""
        assert self.line
        message = BackMsg()
        state = message.rerun_script
        state.query_string, state.page_name = self.query, self.page
        state.widget_states.widgets.extend(self.widgets.values())
        if pressed:
            state.widget_states.widgets.append(WidgetState(id=pressed, trigger_value=True))
        if fragment:
            state.fragment_id, state.is_auto_rerun = fragment, True
        self.finished.clear()
        self.partial = bool(fragment)
        begun = time.perf_counter()
        await self.line.send(message.SerializeToString())
        await asyncio.wait_for(self.finished.wait(), 120)
        self.laps.append(time.perf_counter() - begun)
        if self.fault:
            raise Broken(self.fault)

    def find(self, key: str) -> str:
        """The id of the widget with that key, "" where it is not on the page."""
        ids = (getattr(element, "id", "") for element in self.elements.values())
        return next((id for id in ids if isinstance(id, str) and id.endswith(f"-{key}")), "")

    async def press(self, key: str) -> None:
        button = self.find(key)
        if not button:
            raise Broken(f"there is no button {key!r}")
        await self.rerun(pressed=button)

    async def turn(self) -> None:
        """What the page does by itself: its fragments, each after its pause; without any, nothing but time passes."""
        for fragment, pause in list(self.fragments.items()) or [("", 0.3)]:
            await asyncio.sleep(pause)
            await self.rerun(fragment=fragment)

    async def until(self, check: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not check():
            if time.monotonic() > end:
                raise Broken(f"still waiting after {seconds:.0f} s: {self.said()}")
            await self.turn()

    @property
    def jobs(self) -> list[str]:
        """The runs in this reader's address."""
        return [id for ids in parse_qs(self.query).get("job", []) for id in ids.split(",")]

    @property
    def running(self) -> bool:
        return bool(self.find("stop"))

    def said(self) -> list[str]:
        """What is said in boxes and bars."""
        boxes = (getattr(element, "body", "") or getattr(element, "text", "") for element in self.elements.values())
        return [box for box in boxes if isinstance(box, str) and box and "<" not in box]

    def texts(self) -> list[str]:
        """The decoded texts on the page, card by card."""
        bodies = [getattr(element, "body", "") for element in self.elements.values()]
        found = [part for body in bodies if isinstance(body, str) for part in TEXT.findall(body)]
        return [html.unescape(re.sub(r"<[^>]*>", "", part)) for part in found]
