"""Mounts a scene: the one custom component of the app. The whole scene travels once; the resting place comes back."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import streamlit as st

from pages.parts.colours import either
from pages.parts.lecture import presenting
from pages.parts.text import language, t
from pages.pictures.scene import Scene

ASSETS = Path(__file__).parents[2] / "assets"
SCRIPTS = ("stage/reel.mjs", "stage/draw.mjs", "stage/narration.mjs", "stage/still.mjs", "stage.mjs")
WORDS = ("stage", "first", "back", "next", "last", "play", "pause", "scrub", "speed", "hint", "one", "two", "keep")
LESSON_WORDS = ("told", "narration", "earlier", "later", "part", "task", "right", "wrong", "reveal")
TONGUES = {"en": "en", "zh": "zh-Hans"}
LATER = {"n": "{n}", "all": "{all}"}  # placeholders that the stage itself fills


@st.cache_resource(show_spinner=False)
def component(version: str):
    """The player. Its code is inlined, so that no page's address can break a relative import."""
    return st.components.v2.component(  # type: ignore[reportAttributeAccessIssue]
        f"stage_{version}",
        html='<div class="stage"></div>',
        css=style(),
        js=script() + "\nexport default mount;\n",
    )


def script() -> str:
    """The player's modules as one: without the imports of each other, which one file does not need."""
    parts = ((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    return "\n".join(re.sub(r'^import .* from "\./.*;\n', "", part, flags=re.MULTILINE) for part in parts)


def style() -> str:
    return (ASSETS / "stage.css").read_text(encoding="utf-8")


def version() -> str:
    """Changes with the player's code, so that an open page never runs an old one."""
    return hashlib.sha256((script() + style()).encode()).hexdigest()[:8]


def stage(
    scene: Scene,
    methods: list[str],
    key: str,
    position: int = 0,
    autoplay: bool = False,
    wide: bool = False,
    linked: bool = False,
    leads: bool = True,
) -> int:
    """Show `scene` with the hues of `methods`; returns the frame it rests at.

    wide: no panel at its side. linked: the page puts that frame into the address (`moment.remember`). leads: it is
    what the page is about, and has the clicker in present mode.
    """
    held = st.session_state.setdefault(f"stage.{key}", Held(language()))
    held.follow(language(), key not in st.session_state)
    place = position if held.place is None else held.place
    looks = manner(methods) | {"wide": wide, "linked": linked, "leads": leads}
    data = payload(scene, looks, place, autoplay and held.place is None)
    result = component(version())(
        data=data.encode(),  # as a dict, Streamlit would import pandas to look for tables in it
        key=key,
        default={"position": position, "selected": ""},
        on_position_change=lambda: None,
        on_selected_change=lambda: None,
    )
    held.rest = int(result.position if result.position is not None else position)
    return held.rest


@dataclass
class Held:
    """What was out of sight, or is told in another language, is a new picture to the player: it opens where the reader
    had left it, `place`."""

    language: str
    rest: int | None = None
    place: int | None = None

    def follow(self, language: str, away: bool) -> None:
        if language != self.language or (away and self.rest is not None):
            self.language, self.place = language, self.rest


Data = dict[str, object]


def manner(methods: list[str]) -> Data:
    """How this reader wants to be shown things: language, words, colours, in present mode or not."""
    return {
        "lang": tongue(),
        "present": presenting(),
        "hues": {method: asdict(either(method)) for method in methods},
        "words": {word: t(f"stage.{word}", LATER) for word in WORDS + LESSON_WORDS},
    }


def payload(scene: Scene, manner: Data, position: int, autoplay: bool = False) -> str:
    """All that the player needs to know, as JSON. The scene is most of it, and is not written anew for every reader."""
    name = hashlib.sha256(scene.json.encode()).hexdigest()[:12]
    rest = json.dumps(manner | {"id": name, "position": position, "autoplay": autoplay})
    return f'{rest[:-1]}, "scene": {scene.json}}}'


def tongue() -> str:
    """The language as HTML names it."""
    return TONGUES[language()]
