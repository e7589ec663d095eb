"""One page of the static site as HTML: where else one can go, the picture, the same as text, and what needs the app."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from urllib.parse import urlencode

from pages.lessons import ORDER
from pages.parts import cards, handout, stage
from pages.parts.choice import prompt_name
from pages.parts.handout import Shown
from pages.parts.text import NAMES, language, t, t_or
from pages.pictures.scene import Line, Scene

FOLDER = Path(__file__).parents[2] / "assets" / "site"


@dataclass(frozen=True)
class Place:
    """A page of the site: a page of the app, and what is chosen on it, under the names of the app's address."""

    page: str
    choices: tuple[tuple[str, str], ...] = ()

    @property
    def file(self) -> str:
        return "-".join([self.page, *(value for _, value in self.choices)]) + ".html"

    @property
    def address(self) -> str:
        """Where the app shows the same."""
        return f"{self.page}?{urlencode([*self.choices, ('lang', language())])}"

    def but(self, key: str, value: str) -> "Place":
        return Place(self.page, tuple((name, value if name == key else old) for name, old in self.choices))


HOME, TASKS = Place("index"), Place("tasks")


def start() -> str:
    """The app's first page."""
    return f"?lang={language()}"


@cache
def asset(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def page(place: Place, pages: Sequence[Place], shown: Shown, app: str) -> bytes:
    manner, around = handout.words(shown)
    around |= {
        "frame": asset("site.css"),
        "play": asset("play.mjs"),
        "nav": nav(place, pages),
        "heading": html.escape(shown.title),
        "choices": choices(place, pages),
        "twin": onward(place, pages) + (numbers(shown) if place.page == "race" else said(shown.scene)),
        "live": live(place, app),
    }
    return handout.alone(shown.scene, shown.position, manner, around, shown.wide, FOLDER / "page.html")


def nav(place: Place, pages: Sequence[Place]) -> str:
    """Home, every kind of page, and this page in the other languages."""
    first = {one.page: one for one in reversed(pages)}
    found = [link(HOME, t("site.home"), place == HOME)]
    found += [link(first[name], t(f"nav.{name}"), name == place.page) for name in dict.fromkeys(p.page for p in pages)]
    found += [tongue(place, other) for other in NAMES if other != language()]
    return f'<nav class="pages" aria-label="{html.escape(t("site.pages"))}">{"".join(found)}</nav>'


def link(place: Place, words: str, current: bool = False) -> str:
    here = ' aria-current="page"' if current else ""
    return f'<a data-stay href="{html.escape(place.file)}"{here}>{html.escape(words)}</a>'


def tongue(place: Place, other: str) -> str:
    code = stage.TONGUES[other]
    file = html.escape(f"../{other}/{place.file}")
    return f'<a class="tongue" data-stay href="{file}" hreflang="{code}" lang="{code}">{NAMES[other]}</a>'


def onward(place: Place, pages: Sequence[Place]) -> str:
    """From a lesson to the one after it."""
    lessons = [one for one in pages if one.page in ORDER]
    later = lessons[lessons.index(place) + 1 :] if place in lessons else []
    return f"<p>{link(later[0], t('site.next', {'title': t(f'{later[0].page}.title')}))}</p>" if later else ""


def option(key: str, value: str) -> str:
    """What the app calls a value."""
    if key == "trace":
        return prompt_name(value)
    if key == "method":
        return t_or(f"method.{value}.title", value)
    return t(f"preset.{'this device' if value == 'device' else value}") if key == "tuning" else t(f"clock.{value}")


def label(key: str) -> str:
    return {
        "trace": t("choice.prompt"),
        "tuning": t("tuning"),
        "clock": t("race.clock"),
        "method": t("stepping.which"),
    }[key]


def choices(place: Place, pages: Sequence[Place]) -> str:
    """The app's controls as links: a row for each thing that could be chosen otherwise."""
    rows = []
    for key, value in place.choices:
        others = dict.fromkeys(dict(one.choices)[key] for one in pages if one.page == place.page)
        there = [other for other in others if place.but(key, other) in pages]
        links = [f"<b>{html.escape(option(key, v))}</b>" if v == value else go(place, key, v) for v in there]
        name = html.escape(label(key))
        if len(there) > 1:
            rows.append(f'<nav class="choice" aria-label="{name}"><span>{name}</span>{"".join(links)}</nav>')
    return f'<div class="choices">{"".join(rows)}</div>' if rows else ""


def go(place: Place, key: str, value: str) -> str:
    return link(place.but(key, value), option(key, value))


def said(scene: Scene) -> str:
    """A lesson's lines, or the sentence of every frame, for readers without the picture."""
    lines = [spoken(line) for line in scene.lines]
    frames = [f"<li><b>{html.escape(f.caption)}</b> {html.escape(f.say)}</li>" for f in scene.frames]
    return fold(t("site.said"), f'<ol class="said">{"".join(lines or frames)}</ol>')


def spoken(line: Line) -> str:
    parts = [f"<b>{html.escape(line.title)}</b>", bare(line.text)]
    if line.task:
        parts.append(f"{html.escape(t('stage.task'))} {bare(line.task)}")
    if asked := line.question:
        marks = ["✓" if place == asked.right else "–" for place in range(len(asked.options))]
        options = [f"{mark} {html.escape(o)}" for mark, o in zip(marks, asked.options, strict=True)]
        parts.append(fold(asked.text, "<br>".join([*options, html.escape(asked.because)])))
    return f"<li>{'<br>'.join(parts)}</li>"


def bare(text: str) -> str:
    """Without the marks that tie its words to shapes."""
    return html.escape(re.sub(r"\[([^\]]+)\]\([\w.-]+\)", r"\1", text))


def fold(summary: str, inner: str) -> str:
    return f"<details><summary>{html.escape(summary)}</summary>{inner}</details>"


def numbers(shown: Shown) -> str:
    """The race as a table."""
    rows = cards.numbers_table(shown.runs)
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in rows)
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    return fold(t("table.runs"), table)


def live(place: Place, app: str) -> str:
    """What this page cannot do, and where the app does it."""
    return filled("site.live", place.address, app)


def filled(key: str, address: str, app: str) -> str:
    """A text with one link to the app; where no app is known, what to type behind its address."""
    shown = html.escape(address)
    anchor = f'<a href="{html.escape(f"{app}/{address}")}">{shown}</a>' if app else f"<code>/{shown}</code>"
    return html.escape(t(key, {"link": "\0"})).replace("\0", anchor)


def index(pages: Sequence[Place], app: str) -> bytes:
    """The first page of a language."""
    lessons = [one for one in pages if one.page in ORDER]
    parts = [f"<h1>{html.escape(t('start.title'))}</h1><p>{html.escape(t('site.lead'))}</p>"]
    if lessons:
        items = "".join(f"<li>{link(one, t(f'{one.page}.title'))}</li>" for one in lessons)
        parts.append(f'<h2>{html.escape(t("nav.lessons"))}</h2><ol class="doors">{items}</ol>')
    parts += [doors(name, pages) for name in ("race", "step")]
    if TASKS in pages:
        parts.append(f"<h2>{html.escape(t('nav.tasks'))}</h2><p>{link(TASKS, t('tasks.title'))}</p>")
    parts += [part("lecture"), f"{part('app')}<p>{filled('site.live.all', start(), app)}</p>"]
    return words_alone(nav(HOME, pages), "".join(parts))


def words_alone(nav: str, body: str, style: str = "") -> bytes:
    """A page without a picture. style: what it needs beside the site's own."""
    given = {"lang": stage.tongue(), "colours": handout.variables(), "frame": asset("site.css") + style}
    return Template(asset("index.html")).substitute(given | {"nav": nav, "body": body}).encode()


def doors(name: str, pages: Sequence[Place]) -> str:
    """A heading, and a link for each prompt."""
    first = {dict(one.choices)["trace"]: one for one in reversed(pages) if one.page == name}
    if not first:
        return ""
    links = "".join(f"<li>{link(first[prompt], prompt_name(prompt))}</li>" for prompt in reversed(first))
    about = html.escape(t(f"door.{name}.about"))
    return f'<h2>{html.escape(t(f"nav.{name}"))}</h2><p>{about}</p><ul class="doors">{links}</ul>'


def part(name: str) -> str:
    return f"<h2>{html.escape(t(f'site.{name}'))}</h2><p>{html.escape(t(f'site.{name}.text'))}</p>"


def door() -> bytes:
    """The site's very first page sends everybody on, by the browser's language; without scripts, by a link."""
    links = "".join(
        f'<li><a href="{name}/index.html" lang="{stage.TONGUES[name]}">{words}</a></li>'
        for name, words in NAMES.items()
    )
    script = 'location.replace((navigator.language.startsWith("zh") ? "zh" : "en") + "/index.html" + location.search);'
    body = f'<h1>DraftScope</h1><ul class="doors">{links}</ul><script>{script}</script>'
    given = {"lang": "en", "colours": handout.variables(), "frame": asset("site.css"), "nav": "", "body": body}
    return Template(asset("index.html")).substitute(given).encode()
