"""The family of drafters: who is in it, where each stands, two of them compared, and the words in two languages."""

import html
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st

from pages.parts import cards, lecture, source
from pages.parts.colours import BOTH
from pages.parts.text import catalogue, language, t

PAGES = Path(__file__).parents[1]
ARXIV = "https://arxiv.org/abs/"
HOW = ("steps", "block", "combined")  # columns of the map: how the places of a draft come about
READS = ("text", "input", "layers")  # its rows: what the drafter knows of the target


@dataclass(frozen=True)
class Member:
    """A method of the family. how, reads: its place on the map. paper: an arXiv id, or "" and a link. method: its key
    in this app, where it runs here."""

    key: str
    name: str
    year: int
    how: str
    reads: str
    paper: str = ""
    link: str = ""
    method: str = ""

    @property
    def address(self) -> str:
        return self.link or ARXIV + self.paper

    @property
    def cited(self) -> str:
        return f"arXiv {self.paper}" if self.paper else self.link.removeprefix("https://")


LOOKUP = "https://github.com/apoorvumang/prompt-lookup-decoding"
MEMBERS = (
    Member("speculative", "Speculative sampling", 2023, "steps", "text", "2211.17192"),
    Member("lookup", "Prompt lookup", 2023, "block", "text", link=LOOKUP, method="lookup"),
    Member("medusa", "Medusa", 2024, "combined", "input", "2401.10774"),
    Member("eagle", "EAGLE", 2024, "steps", "input", "2401.15077", method="eagle"),
    Member("eagle2", "EAGLE-2", 2024, "steps", "input", "2406.16858", method="eagle2"),
    Member("mtp", "MTP", 2024, "steps", "input", "2412.19437"),
    Member("eagle3", "EAGLE-3", 2025, "steps", "input", "2503.01840", method="eagle3"),
    Member("peagle", "P-EAGLE", 2026, "block", "input", "2602.01469"),
    Member("dflash", "DFlash", 2026, "block", "layers", "2602.06036", method="dflash"),
    Member("ddtree", "DDTree", 2026, "combined", "layers", "2604.12989", method="ddtree"),
    Member("eagle31", "EAGLE-3.1", 2026, "steps", "input", "2605.09992"),
    Member("domino", "Domino", 2026, "combined", "layers", "2605.29707"),
    Member("dspark", "DSpark", 2026, "combined", "layers", "2607.05147"),
    Member("dflash2", "DFlash 2", 2026, "combined", "layers", link="https://github.com/z-lab/dflash"),
)
# Rows of the comparison, and where in the app each of the two is to be seen.
ROWS = {
    "draft": ("dflash?at=stairs", "dflash?at=blanks"),
    "network": ("step?tuning=published&method=eagle3", "dflash?at=last"),
    "attention": ("dflash?at=branch", "dflash?at=both"),
    "features": ("eagle3", "dflash?at=inject"),
    "passes": ("dflash?at=clock", "dflash?at=tall"),
    "head": ("dflash?at=stairs", "dflash?at=head"),
    "time": ("latency", "dflash?at=point"),
}
WORDS = (
    *("target", "drafter", "method", "root", "draft", "pass", "kept", "verdict", "bonus", "step"),
    *("tau", "length", "depth", "features", "head", "mask", "p", "q", "lossless"),
)


def here(member: Member) -> bool:
    return member.method in source.methods()


def hue(member: Member) -> str:
    """The colours of its method here, or plain ink."""
    if here(member):
        return cards.variables(source.methods()[member.method].card)
    plain = {"hue": BOTH.ink, "fill": BOTH.paper, "tint": BOTH.paper, "muted": BOTH.muted, "ink": BOTH.ink}
    return ";".join(f"--{name}:{value}" for name, value in {**plain, "line": BOTH.line}.items())


def inside(path: str) -> str:
    """A link within the app that keeps the language, what a lecturer asked for, and what is still running."""
    kept = {key: st.query_params[key] for key in (*lecture.STAYING, *lecture.RUNNING) if key in st.query_params}
    query = urlencode({**kept, "lang": language()}, safe=",")
    return html.escape(f"{path}{'&' if '?' in path else '?'}{query}")


def chip(member: Member) -> str:
    about = html.escape(t(f"family.{member.key}"), quote=True)
    mark = '<i class="ds-swatch"></i>' if here(member) else ""
    return f'<li style="{hue(member)}" title="{about}">{mark}{html.escape(member.name)}</li>'


def map_html() -> str:
    """A table of three by three: chips where members stand; those that run here have a swatch."""
    head = "".join(f'<th scope="col">{cards.say(f"family.how.{how}")}</th>' for how in HOW)
    body = ""
    for reads in READS:
        cells = ""
        for how in HOW:
            found = [chip(member) for member in MEMBERS if (member.how, member.reads) == (how, reads)]
            cells += f"<td><ul>{''.join(found)}</ul></td>" if found else "<td></td>"
        body += f'<tr><th scope="row">{cards.say(f"family.reads.{reads}")}</th>{cells}</tr>'
    corner = f"<td>{cards.say('family.corner')}</td>"
    return table("ds-map", corner + head, body)


def card(member: Member) -> str:
    """Name, year, one sentence, its source, and the way to it in the app."""
    way = f"step?tuning=published&method={member.method}"
    run = f' · <a href="{inside(way)}" target="_self">{cards.say("family.here")}</a>' if here(member) else ""
    cited = f'<a href="{html.escape(member.address)}" target="_blank" rel="noreferrer">{html.escape(member.cited)}</a>'
    swatch = '<i class="ds-swatch"></i>' if here(member) else ""
    return (
        f'<article class="ds-card" style="{hue(member)}"><header><h2>{swatch}{html.escape(member.name)}</h2>'
        f'<span class="ds-badge">{member.year}</span></header><p>{cards.say(f"family.{member.key}")}</p>'
        f'<p class="ds-note">{cited}{run}</p></article>'
    )


def comparison() -> str:
    """The two methods row by row; every cell leads to where the app shows it."""
    names = [source.methods()[key].card for key in ("eagle3", "dflash")]
    head = "".join(f'<th scope="col" style="{cards.variables(c)}">{html.escape(cards.title(c))}</th>' for c in names)
    body = ""
    for row, ways in ROWS.items():
        cells = ""
        for name, way in zip(names, ways, strict=True):
            text = cards.say(f"family.{row}.{name.key}")
            cells += f'<td><a href="{inside(known(way))}" target="_self">{text}</a></td>'
        body += f'<tr><th scope="row">{cards.say(f"family.row.{row}")}</th>{cells}</tr>'
    return table("ds-versus", "<td></td>" + head, body)


def table(look: str, head: str, body: str) -> str:
    """A table that scrolls sideways where it is too wide for the page."""
    rows = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="ds-wide" tabindex="0"><table class="{look}" style="{ground()}">{rows}</table></div>'


def ground() -> str:
    """Colours that are no method's."""
    return f"--ink:{BOTH.ink};--muted:{BOTH.muted};--line:{BOTH.line}"


def known(way: str) -> str:
    """The way there; where that lesson is missing, the step page on its method."""
    name = way.split("?")[0]
    return way if (PAGES / f"{name}.py").exists() else f"step?tuning=published&method={name}"


def words() -> list[dict[str, str]]:
    """Each word in English and Chinese, and what it means in the reader's language."""
    en, zh = catalogue("en"), catalogue("zh")
    return [
        {"English": en[f"word.{w}"], "中文": zh[f"word.{w}"], t("family.meaning"): t(f"word.{w}.meaning")}
        for w in WORDS
    ]


def show() -> None:
    st.markdown(t("family.lead"))
    st.html(map_html())
    st.caption(t("family.map.note"))
    st.html(f'<div class="ds-kin ds-family">{"".join(map(card, MEMBERS))}</div>')
    st.subheader(t("family.versus"), anchor=False)
    st.markdown(t("family.versus.lead"))
    st.html(comparison())
    st.subheader(t("family.words"), anchor=False)
    st.table(words())
