"""Do draws follow the target's law? The recorded experiment, and one to be made here: a rule, two laws, many draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import TypeVar

import plotly.graph_objects as go
import streamlit as st

from pages.parts import charts
from pages.parts.address import note, number, one_of, restore
from pages.parts.colours import look, theme
from pages.parts.findings import model_badge
from pages.parts.paper import blank
from pages.parts.stage import stage
from pages.parts.text import say, t, t_or
from pages.pictures import rule as trials
from pages.pictures.step import spell
from spec_core import draws
from spec_core.draws import Arm, Experiment, Spot
from spec_core.trace import Trace, TraceError, Word, text_of, words

FILE = Path(__file__).parents[2] / "assets" / "measurements" / "draws.json"
SHOWN = 12  # continuations with a place of their own in the chart
SIGMAS = 2  # how far chance alone usually goes
SPREAD = 0.6  # of a place, over which the marks stand side by side
SIZES = (200, 1000, 5000, 20000)
Number = TypeVar("Number", int, float)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "hexagon")
CROSSES = ("x", "cross")  # for what is wrong


@dataclass(frozen=True)
class Drawn:
    """Counts of one way to draw, with its name and colour; `wrong` ones get a cross."""

    name: str
    hue: str
    counts: Sequence[int]
    wrong: bool


@st.cache_data(show_spinner=False)
def recorded(changed: float) -> Experiment | None:
    """The recorded experiment. changed: the file's time stamp, so that a new one is read."""
    try:
        return draws.load(FILE)
    except TraceError:
        return None


def counted() -> None:
    """What thousands of recorded draws say, by every method and by two spoilt ones."""
    st.subheader(t("draws.title"), anchor=False)
    found = recorded(FILE.stat().st_mtime) if FILE.exists() else None
    if found is None:
        st.info(t("draws.none"))
        return
    arms = found.spots[0].arms
    st.markdown(t("draws.lead", {"n": found.draws, "arms": len(arms), "wrong": sum(bool(arm.wrong) for arm in arms)}))
    spot = choose_spot(found)
    labels = [continuation(tokens, found.words) for tokens in spot.continuations]
    chart = tally([*labels, t("draws.others")], spot.law, choose_arms(spot), found.draws)
    charts.show(chart, "draws")
    where = f"{found.device} ({found.dtype})"
    st.caption(t("badge.replay", {"device": where, "date": found.date}) + " · " + t("draws.band"))
    st.table([row(arm, spot) for arm in spot.arms])
    st.caption(t("draws.test", {"doubt": draws.DOUBT}))
    charts.twin(chart, "draws")


def choose_spot(found: Experiment) -> Spot:
    """Where there are several places, the reader's choice."""
    places = range(len(found.spots))
    if len(places) == 1:
        st.caption(t("draws.only", {"text": excerpt(found.spots[0], found.words)}))
        return found.spots[0]
    names = {i: excerpt(found.spots[i], found.words) for i in places}
    restore("spot", number(int, 0, len(places) - 1), 0)
    st.radio(t("draws.place"), places, format_func=names.__getitem__, horizontal=True, key="spot")
    return found.spots[note("spot", 0, str)]


def choose_arms(spot: Spot) -> list[Drawn]:
    """The ways to draw that are in the chart: at first the yardstick, those with reject, and the spoilt ones."""
    names = {i: title(arm) for i, arm in enumerate(spot.arms)}
    usual = [i for i, arm in enumerate(spot.arms) if not i or by_reject(arm)]
    restore("arms", some_numbers(len(names)), usual)
    st.pills(t("draws.arms"), list(names), selection_mode="multi", format_func=names.__getitem__, key="arms")
    picked = note("arms", usual, lambda arms: ",".join(map(str, arms)) or "-")
    return [Drawn(names[i], spot.arms[i].method, spot.arms[i].counts, bool(spot.arms[i].wrong)) for i in picked]


def some_numbers(count: int) -> Callable[[str], list[int]]:
    """Numbers below `count` with commas between them; `-` for none."""

    def read(text: str) -> list[int]:
        found = [int(part) for part in text.split(",")] if text != "-" else []
        if not all(0 <= number < count for number in found):
            raise ValueError(text)
        return found

    return read


def by_reject(arm: Arm) -> bool:
    """Its guesses were drawn from q, or were said to be."""
    return bool(arm.wrong) or arm.knobs.get("shape") == "sampled"


def excerpt(spot: Spot, known: dict[int, Word]) -> str:
    """The last words before the draws."""
    return "…" + text_of([*spot.before, spot.root], known)[-40:] + " …"


def continuation(tokens: Sequence[int], known: dict[int, Word]) -> str:
    """As it reads; two tokens may be one word."""
    return spell(text_of(tokens, known))


def title(arm: Arm) -> str:
    """A way to draw in words."""
    method = t_or(f"method.{arm.method}.title", arm.method)
    if arm.wrong:
        return t(f"draws.wrong.{arm.wrong}", {"method": method})
    return t("draws.sampled", {"method": method}) if by_reject(arm) else method


def row(arm: Arm, spot: Spot) -> dict[str, str]:
    """One arm's test."""
    found = draws.verdict(arm.counts, spot.law)
    return {
        t("draws.arm"): title(arm),
        t("draws.rule"): t("draws.rule.reject" if by_reject(arm) else "draws.rule.match"),
        t("draws.held"): f"{arm.held / arm.asked:.0%}" if arm.asked else "–",
        "χ²": f"{found.x:.1f} ({found.df})",
        t("draws.chance"): chance(found.chance),
        t("draws.verdict"): t("draws.fits" if found.fits else "draws.fails"),
    }


def chance(p: float) -> str:
    return f"{p:.2f}" if p >= 0.01 else f"{p:.0e}" if p > 1e-300 else "0"


def tally(labels: Sequence[str], law: Sequence[float], shown: Sequence[Drawn], n: int) -> charts.Chart:
    """Expected draws as bars with what chance allows, and what came out as marks. The last label takes all the rest."""
    few = min(SHOWN, len(labels) - 1)
    names = [*labels[:few], labels[-1]]
    share = folded(law, few)
    figure = named(names)
    figure.add_trace(bars(names, share, n))
    drawn = [Drawn(one.name, one.hue, folded(one.counts, few), one.wrong) for one in shown]
    for place, one in enumerate(drawn):
        shift = (place - (len(drawn) - 1) / 2) * SPREAD / max(1, len(drawn))
        figure.add_trace(marks(one, [i + shift for i in range(len(names))], names, place))
    rows: list[charts.Row] = [
        {t("draws.text"): name, t("draws.law"): round(n * p, 1), **{one.name: one.counts[i] for one in drawn}}
        for i, (name, p) in enumerate(zip(names, share, strict=True))
    ]
    return charts.Chart(figure, t("draws.alt"), rows)


def folded(values: Sequence[Number], few: int) -> list[Number]:
    """The first `few`, and the sum of all others."""
    return [*values[:few], sum(values[few:])]  # type: ignore[list-item]


def named(names: Sequence[str]) -> go.Figure:
    """A place a name, and room below for the names."""
    x: dict[str, object] = {"tickangle": -35, "tickvals": list(range(len(names))), "ticktext": list(names)}
    y: dict[str, object] = {"title": t("draws.y"), "rangemode": "tozero"}
    figure = blank(charts.layout(theme(), {**x, "range": [-0.6, len(names) - 0.4]}, y, 420))
    figure.update_layout(margin_b=110)
    return figure


def bars(names: Sequence[str], share: Sequence[float], n: int) -> go.Bar:
    """What the law expects of `n` draws."""
    ground = theme()
    spread = [SIGMAS * sqrt(n * p * max(0.0, 1 - p)) for p in share]
    return go.Bar(
        x=list(range(len(names))),
        y=[n * p for p in share],
        name=t("draws.law"),
        marker={"color": ground.line, "line": {"color": ground.muted, "width": 1}},
        error_y={"array": spread, "color": ground.ink, "thickness": 1.4, "width": 5},
        text=[t("draws.hover.law", {"text": a, "p": p, "n": n * p}) for a, p in zip(names, share, strict=True)],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )


def marks(one: Drawn, x: list[float], names: Sequence[str], place: int) -> go.Scatter:
    """What came out of one way to draw."""
    said = [t("draws.hover", {"name": one.name, "text": a, "count": c}) for a, c in zip(names, one.counts, strict=True)]
    colour = look(one.hue, theme()).fill
    symbols = CROSSES if one.wrong else SYMBOLS
    symbol = symbols[place % len(symbols)]
    return go.Scatter(
        x=x,
        y=one.counts,
        name=one.name,
        mode="markers",
        marker={"symbol": symbol, "size": 10, "color": colour, "line": {"width": 1, "color": theme().ink}},
        text=said,
        hovertemplate="%{text}<extra></extra>",
    )


def bench(run: Trace) -> None:
    """A rule of the reader's choice on the two laws of a guess of this run, drawn here and now."""
    cases = trials.cases(run)
    if not cases:
        return
    st.subheader(t("bench.title"), anchor=False)
    st.markdown(t("bench.lead"))
    case = choose_case(run, cases)
    scene = trials.reject(run, case, say)
    hue = run.header.method.key
    stage(
        scene, [hue], f"trial-{run.header.id}-{case.step}-{case.index}", len(scene.frames) - 1, wide=True, leads=False
    )
    left, right = st.columns([3, 8], gap="medium")
    with left:
        rule = choose_rule()
        n = choose_size()
        seed = st.session_state.setdefault("bench.seed", 1)
        st.button(t("bench.again"), on_click=lambda: st.session_state.update({"bench.seed": seed + 1}), width="stretch")
    laws, known = trials.trial(run, case).laws, words(run)
    p, q = [*laws.p, laws.rest[0]], [*laws.q, laws.rest[1]]
    out = draws.play(rule, p, q, n, seed)
    found = draws.verdict(out.counts, p)
    labels = [*(spell(known.get(token, f"<{token}>")) for token in laws.tokens), t("draws.others")]
    drawn = Drawn(t(f"bench.rule.{rule}"), hue, out.counts, rule not in draws.RIGHT)
    with right:
        chart = tally(labels, p, [drawn], n)
        charts.show(chart, "bench")
        st.caption(model_badge(t("bench.badge")))
        values = {"n": n, "x": found.x, "df": found.df, "chance": chance(found.chance), "held": out.accepted / n}
        st.markdown(t("bench.fits" if found.fits else "bench.fails", values) + " " + t(f"bench.about.{rule}"))
        charts.twin(chart, "bench")


def choose_case(run: Trace, cases: list[trials.Case]) -> trials.Case:
    """Any tested guess of the run; the refused one of the lesson to begin with."""
    first = cases.index(trials.telling(run).get("refused", cases[0]))
    state = f"bench.guess.{run.header.id}"  # another run has other guesses
    restore("guess", number(int, 1, len(cases)), first + 1, state)
    st.slider(t("bench.guess"), 1, len(cases), key=state)
    case = cases[note("guess", first + 1, str, state) - 1]
    found, known = trials.trial(run, case), words(run)
    name = spell(known.get(found.token, f"<{found.token}>"))
    st.caption(t("bench.which", {"token": name, "step": case.step, "p": found.asked.p, "q": found.asked.q}))
    return case


def choose_rule() -> draws.Rule:
    restore("rule", one_of(draws.RULES), draws.RULES[0])
    st.radio(t("bench.rule"), draws.RULES, format_func=lambda rule: t(f"bench.rule.{rule}"), key="rule")
    return note("rule", draws.RULES[0], str)


def choose_size() -> int:
    restore("draws", number(int, SIZES[0], SIZES[-1]), SIZES[1])
    if st.session_state["draws"] not in SIZES:
        st.session_state["draws"] = SIZES[1]
    st.select_slider(t("bench.n"), SIZES, key="draws")
    return note("draws", SIZES[1], str)
