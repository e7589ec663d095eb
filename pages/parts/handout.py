"""What can be taken away from a page: a link for a lecture, the page as one file that plays alone, a table, runs."""

import csv
import html
import io
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template

import streamlit as st

from pages.parts import cards, lecture, stage, twin
from pages.parts.state import Origin
from pages.parts.text import t
from pages.pictures.scene import Scene
from spec_core.trace import Step, Trace

ROOT = Path(__file__).parents[2]
ALONE = ROOT / "assets/stage/alone.html"


@dataclass(frozen=True)
class Shown:
    """What a page shows: runs, their scene, the frame it rests at. wide: without a panel at its side."""

    page: str
    title: str
    runs: Sequence[Trace]
    scene: Scene
    position: int
    origin: Origin
    wide: bool = False

    @property
    def name(self) -> str:
        """Of files made of it."""
        return f"draftscope-{self.page}-{self.runs[0].header.id}"

    @property
    def step(self) -> tuple[Trace, Step]:
        return twin.step_at(self.runs, self.scene.frames[self.position])


def offer(shown: Shown, rows: Sequence[twin.Row]) -> None:
    """Two buttons below the picture: the link, and what can be saved. rows: its table."""
    with st.container(horizontal=True, vertical_alignment="center", key="save"):
        lecture.offer(shown.page)
        with st.popover(t("handout.save"), icon=":material/download:", key="take"):
            files(shown, rows)


def files(shown: Shown, rows: Sequence[twin.Row]) -> None:
    whole = partial(alone, shown.scene, shown.position, *words(shown), wide=shown.wide)
    button("alone", f"{shown.name}.html", "text/html", whole, help=t("handout.alone.help"))
    button("csv", f"{shown.name}.csv", "text/csv", partial(sheet, rows))
    st.caption(t("handout.runs"))
    with st.container(horizontal=True):
        for place, trace in enumerate(shown.runs):
            cards.save_button(trace, place)


def button(what: str, name: str, kind: str, make: "partial[bytes]", help: str | None = None) -> None:
    """A file that is made when it is asked for: on a thread that knows nothing of the reader or the language."""
    key = f"handout.{what}"
    st.download_button(t(key), make, name, kind, key=key, on_click="ignore", icon=":material/download:", help=help)


def sheet(rows: Sequence[twin.Row]) -> bytes:
    """The table for a spreadsheet, with the mark by which Excel knows UTF-8."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows({name: plain(cell) for name, cell in row.items()} for row in rows)
    return out.getvalue().encode("utf-8-sig")


def plain(cell: twin.Cell) -> twin.Cell:
    """A token that a spreadsheet would take for a formula is marked as text."""
    return f"'{cell}" if isinstance(cell, str) and len(cell) > 1 and cell[0] in "=+-@" else cell


def words(shown: Shown) -> tuple[stage.Data, dict[str, str]]:
    """What depends on the reader: how the player is to speak, and the words around it, safe inside HTML."""
    badges = dict.fromkeys(cards.badge(run, shown.origin) for run in shown.runs)
    around = {
        "lang": stage.tongue(),
        "title": html.escape(f"DraftScope · {shown.title}"),
        "prompt": html.escape(shown.runs[0].header.prompt.text),
        "origin": "\n".join(badges),
        "noscript": html.escape(t("alone.noscript")),
    }
    hues = list(dict.fromkeys(run.header.method.key for run in shown.runs))
    return stage.manner(hues), around


def alone(
    scene: Scene, position: int, manner: stage.Data, around: dict[str, str], wide: bool = False, template: Path = ALONE
) -> bytes:
    """The whole picture in one HTML file: the same player, its data, no request to anywhere."""
    data = stage.payload(scene, manner | {"wide": wide, "leads": True}, position)
    filled = {
        "colours": variables(),
        "style": stage.style(),
        "script": stage.script(),
        "data": data.replace("<", "\\u003c"),  # no token's text may end the script
    }
    return Template(template.read_text(encoding="utf-8")).substitute(around | filled).encode()


def variables() -> str:
    """The theme as the player's style sheet asks for it; Streamlit hands it over under the same names."""
    theme = tomllib.loads((ROOT / ".streamlit/config.toml").read_text(encoding="utf-8"))["theme"]
    both = {f"{dashed(name)}": f"light-dark({theme['light'][name]}, {theme['dark'][name]})" for name in theme["light"]}
    return "; ".join(f"--st-{name}: {value}" for name, value in both.items()) + f"; --st-font: {theme['font']};"


def dashed(name: str) -> str:
    return re.sub("([A-Z])", lambda found: "-" + found[1].lower(), name)
