"""A trace's text as coloured spans: drafted tokens wear their method's hue, the target's own stay ink."""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pages.parts.colours import Look
from pages.parts.text import t
from spec_core.trace import Trace, Word, accepted, words


@dataclass(frozen=True)
class Mark:
    """One committed token: where it came from. `drafted`: guessed ahead and accepted; else the target added it."""

    token: int
    step: int
    drafted: bool
    end: bool  # a stop token: it closes the text and is no part of it


@dataclass(frozen=True)
class Piece:
    """The fewest tokens in a row that make whole characters."""

    text: str
    marks: tuple[Mark, ...]

    @property
    def drafted(self) -> bool:
        return all(mark.drafted for mark in self.marks)

    @property
    def run(self) -> tuple[int, bool, bool]:
        """Neighbours with equal runs are drawn as one stretch."""
        return self.marks[-1].step, self.drafted, self.marks[-1].end


def marks(trace: Trace) -> list[Mark]:
    stops = set(trace.header.stops)
    return [
        Mark(token, number, place < accepted(step), token in stops)
        for number, step in enumerate(trace.steps)
        for place, token in enumerate(step.committed)
    ]


def as_bytes(word: Word) -> bytes:
    return word.encode() if isinstance(word, str) else bytes(word)


def pieces(items: Sequence[Mark], known: dict[int, Word]) -> list[Piece]:
    """Group tokens until their bytes are text; bytes that never will be are shown as numbers, not as U+FFFD."""
    out: list[Piece] = []
    held: list[Mark] = []
    raw = b""
    for mark in items:
        held, raw = [*held, mark], raw + as_bytes(known.get(mark.token, f"<{mark.token}>"))
        try:
            shown = raw.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                continue
            shown = hexed(raw)
        out.append(Piece(shown, tuple(held)))
        held, raw = [], b""
    return [*out, Piece(hexed(raw), tuple(held))] if held else out


def hexed(raw: bytes) -> str:
    return f"⟨{raw.hex(' ').upper()}⟩"


def stretches(items: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Cut where the step or the origin changes."""
    held: list[Piece] = []
    for piece in items:
        if held and held[-1].run != piece.run:
            yield held
            held = []
        held.append(piece)
    if held:
        yield held


def text_html(trace: Trace, look: Look) -> str:
    """The whole text. translate="no": a browser's translator would take the tokens apart."""
    found = pieces(marks(trace), words(trace))
    inner = "".join(stretch_html(part) for part in stretches(found))
    style = f"--hue:{look.text};--tint:{look.tint}"
    return f'<div class="ds-text" translate="no" style="{style}">{inner}</div>'


def stretch_html(part: Sequence[Piece]) -> str:
    step, drafted, end = part[0].run
    kind = "ds-end" if end else "ds-draft" if drafted else "ds-ink"
    spans = "".join(f"<span>{html.escape(piece.text)}</span>" for piece in part)
    title = t("token.drafted" if drafted else "token.bonus", {"step": step, "count": len(part)})
    return f'<span class="{kind}" title="{html.escape(title)}">{spans}</span>'
