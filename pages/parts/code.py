"""Show the code: the lines that the picture is at, marked in the functions they stand in."""

import html
import io
import keyword
import tokenize
from collections.abc import Iterator, Sequence

import streamlit as st

from pages.parts import listing
from pages.parts.listing import Excerpt
from pages.parts.text import t
from pages.pictures.scene import Scene
from spec_core.trace import Step, Trace


def view(trace: Trace, step: Step, scene: Scene, position: int) -> None:
    """A fold that is filled once it is open: the loop and the rule on the left, the method's draft on the right."""
    with st.expander(t("code"), key="code", on_change="rerun") as fold:
        if not fold.open:
            return
        st.caption(t("code.about"))
        left, right = st.columns(2)
        rules = dict.fromkeys(asked.rule for asked in step.verdict.decisions)
        move = listing.move(scene, position)
        left.html(sheet([listing.loop(), *map(listing.rule, rules)], move))
        right.html(sheet(listing.drafting(trace.header.method.key, trace.header.knobs), move))


def sheet(shown: Sequence[Excerpt], move: str) -> str:
    return "".join(listed(one, listing.marked(one, move)) for one in shown)


def listed(one: Excerpt, marks: set[int]) -> str:
    """One function with the numbers its lines have in the file. A marked line has a bar and a pointer before it."""
    rows = (row(one.first + i, text, one.first + i in marks) for i, text in enumerate(coloured(one.lines)))
    place = html.escape(f"{one.path}:{one.first}")
    return f'<figure class="ds-code"><figcaption>{place}</figcaption><pre translate="no">{"".join(rows)}</pre></figure>'


def row(number: int, text: str, marked: bool) -> str:
    look, sign = (' class="ds-now"', "▸") if marked else ("", " ")
    return f"<span{look}><i>{sign}{number:4d} </i>{text or ' '}</span>"


def coloured(lines: Sequence[str]) -> list[str]:
    """Each line as safe HTML: comments and texts step back, words of the language stand out."""
    out = [""] * len(lines)
    done = [(0, 0)]

    def write(upto: tuple[int, int], look: str = "") -> None:
        (y, x), (to_y, to_x) = done[0], upto
        for line in range(y, to_y + 1):
            text = html.escape(lines[line][x if line == y else 0 : to_x if line == to_y else None])
            out[line] += f'<b class="ds-{look}">{text}</b>' if look and text else text
        done[0] = upto

    for look, start, end in spans(lines):
        write(start)
        write(end, look)
    write((len(lines) - 1, len(lines[-1])))
    return out


def spans(lines: Sequence[str]) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """What has a look of its own: from line and column to line and column, counted from 0."""
    indent = len(lines[0]) - len(lines[0].lstrip())
    text = "\n".join(line[indent:] for line in lines) + "\n"
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        quiet = token.type in (tokenize.COMMENT, tokenize.STRING)
        if quiet or keyword.iskeyword(token.string):
            (y, x), (to_y, to_x) = token.start, token.end
            yield "quiet" if quiet else "word", (y - 1, x + indent), (to_y - 1, to_x + indent)
