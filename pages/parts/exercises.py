"""The tasks of the teaching notes as a page of the static site: solutions folded, links within the site."""

import html
import re
from collections.abc import Sequence
from pathlib import Path

from pages.parts import leaf, relatives
from pages.parts.leaf import Place
from pages.parts.text import language, t

DOCS = Path(__file__).parents[2] / "docs"
FILES = {"en": "TEACHING.md", "zh": "TEACHING.zh.md"}
APP = "http://localhost:8501/"  # how the notes write the app's address
HERE = "◦"  # marks what can be done without the app
INLINE = ((r"\*\*(.+?)\*\*", r"<b>\1</b>"), (r"\*(.+?)\*", r"<em>\1</em>"), (r"`(.+?)`", r"<code>\1</code>"))


def page(place: Place, pages: Sequence[Place], app: str) -> bytes:
    tasks = "".join(task(text, pages, app) for text in texts())
    lead = html.escape(t("site.tasks.lead", {"mark": HERE}))
    body = f"<h1>{html.escape(t('tasks.title'))}</h1><p>{lead}</p>{tasks}"
    whole = f'{body}<p class="live">{leaf.filled("site.live.all", leaf.start(), app)}</p>'
    return leaf.words_alone(leaf.nav(place, pages), whole)


def texts() -> list[str]:
    """Each task as the notes have it, its heading first."""
    notes = (DOCS / FILES[language()]).read_text(encoding="utf-8")
    return [text.split("\n## ")[0] for text in notes.split("\n### ")[1:]]


def task(text: str, pages: Sequence[Place], app: str) -> str:
    heading, rest = text.split("\n", 1)
    asked, solution = rest.split("<details>")
    summary, answer = re.fullmatch(r"<summary>(.*?)</summary>(.*)</details>\s*", solution, re.DOTALL).groups()  # type: ignore[reportOptionalMemberAccess]
    shown = f"<h2>{html.escape(heading)}</h2>{prose(asked, pages, app)}"
    return f"<section>{shown}<details><summary>{summary}</summary>{prose(answer, pages, app)}</details></section>"


def prose(text: str, pages: Sequence[Place], app: str) -> str:
    """Paragraphs with links, bold, emphasis and code: all that the tasks use."""
    return "".join(f"<p>{inline(part, pages, app)}</p>" for part in text.strip().split("\n\n"))


def inline(text: str, pages: Sequence[Place], app: str) -> str:
    def link(found: re.Match[str]) -> str:
        return relatives.way(html.unescape(found[2]).removeprefix(APP), found[1], pages, app)

    shown = html.escape(text, quote=False)
    for pattern, made in INLINE:
        shown = re.sub(pattern, made, shown)
    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", link, shown)
