"""Hue says which method. One table of hues; what a theme needs (fills, tints, readable text) is computed from it."""

import functools
import json
from dataclasses import astuple, dataclass
from pathlib import Path

import streamlit as st

HUES = Path(__file__).parents[2] / "assets" / "hues.json"
SPARE = ("#009E73", "#CC79A7", "#F0E442")  # the rest of Okabe and Ito's colours, for methods without an entry
TEXT, SHAPE = 4.5, 3.0  # contrasts asked of letters and of shapes (WCAG AA)


@dataclass(frozen=True)
class Theme:
    """Paper and ink; equal to .streamlit/config.toml, which a test holds."""

    paper: str
    ink: str
    muted: str
    line: str


THEMES = {
    "light": Theme(paper="#fbf8f1", ink="#23211d", muted="#635d51", line="#d8d0bf"),
    "dark": Theme(paper="#1b1a18", ink="#ece7dc", muted="#b0a898", line="#454139"),
}
# Both themes at once, for the browser to choose from.
BOTH = Theme(*(f"light-dark({day}, {night})" for day, night in zip(*map(astuple, THEMES.values()), strict=True)))


@dataclass(frozen=True)
class Look:
    """A method's colours on one ground: `fill` for shapes, `tint` behind its tokens, `text` for letters on both."""

    fill: str
    tint: str
    text: str


def theme() -> Theme:
    """The theme the reader sees now."""
    return THEMES["dark" if st.context.theme.type == "dark" else "light"]


@functools.cache
def hues() -> dict[str, str]:
    return json.loads(HUES.read_text(encoding="utf-8"))


def hue(key: str) -> str:
    """A method's hue; one the table does not know gets a spare one, always the same."""
    return hues().get(key) or SPARE[sum(key.encode()) % len(SPARE)]


def look(key: str, ground: Theme) -> Look:
    base = hue(key)
    tint = mix(ground.paper, base, 0.14)
    fill = readable(base, (ground.paper,), ground.ink, SHAPE)
    return Look(fill, tint, readable(base, (ground.paper, tint), ground.ink, TEXT))


def either(key: str) -> Look:
    """Both themes' colours, for the browser to choose from: the theme may change and no script hears of it."""
    light, dark = (astuple(look(key, ground)) for ground in THEMES.values())
    return Look(*(f"light-dark({day}, {night})" for day, night in zip(light, dark, strict=True)))


def readable(colour: str, grounds: tuple[str, ...], ink: str, ratio: float) -> str:
    """`colour`, moved towards `ink` only as far as it must to stand out from all `grounds`."""
    steps = (mix(colour, ink, i / 20) for i in range(21))
    return next((c for c in steps if all(contrast(c, g) >= ratio for g in grounds)), ink)


def mix(a: str, b: str, share: float) -> str:
    """`share` of b in a."""
    pairs = zip(channels(a), channels(b), strict=True)
    return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in pairs)


def channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def contrast(a: str, b: str) -> float:
    """WCAG's ratio of two colours, 1 to 21."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    linear = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in channels(colour)]
    return sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
