"""The family page of the static site: the app's own tables, with ways into the app turned into ways within the site."""

import html
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from pages.parts import family, leaf
from pages.parts.leaf import Place
from pages.parts.text import t

STYLE = Path(__file__).parents[2] / "assets" / "page.css"
WAY = re.compile(r'<a href="([^"]*)" target="_self">(.*?)</a>')


def page(place: Place, pages: Sequence[Place], app: str) -> bytes:
    body = "".join(
        [
            f"<h1>{words('family.title')}</h1><p>{words('family.lead')}</p>{family.map_html()}",
            f'<p class="from">{words("family.map.note")}</p>',
            f'<div class="ds-kin ds-family">{"".join(map(family.card, family.MEMBERS))}</div>',
            f"<h2>{words('family.versus')}</h2><p>{words('family.versus.lead')}</p>{family.comparison()}",
            f"<h2>{words('family.words')}</h2>{glossary()}",
            f'<p class="live">{leaf.live(place, app)}</p>',
        ]
    )
    within = WAY.sub(lambda found: way(html.unescape(found[1]), found[2], pages, app), body)
    return leaf.words_alone(leaf.nav(place, pages), within, STYLE.read_text(encoding="utf-8"))


def words(key: str) -> str:
    return html.escape(t(key).replace("**", ""))


def way(address: str, shown: str, pages: Sequence[Place], app: str) -> str:
    """A link of the app's as one of the site's; where the site has no such page, to the app or not at all."""
    part = urlsplit(address)
    asked = dict(parse_qsl(part.query))
    at, wanted = asked.pop("at", ""), {key: value for key, value in asked.items() if key != "lang"}.items()
    found = next((one for one in pages if one.page == part.path and wanted <= dict(one.choices).items()), None)
    if found:
        return f'<a data-stay href="{html.escape(found.file + (f"#{at}" if at else ""))}">{shown}</a>'
    return f'<a href="{html.escape(f"{app}/{address}")}">{shown}</a>' if app else shown


def glossary() -> str:
    rows = family.words()
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in rows)
    return (
        f'<div class="wide"><table class="glossary"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
