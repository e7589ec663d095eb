"""Plotly charts of measurements: each a figure from plain data, with its rows for a table and a CSV file.

Hue is the method, dash and marker are the form of its draft and its layers, hatching is the LM head. Axes are fixed by
the whole measurement, so that moving a slider moves the curves and not the paper.
"""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
import streamlit as st

from pages.parts import whatif
from pages.parts.colours import Theme, look, theme
from pages.parts.once import once
from pages.parts.paper import blank
from pages.parts.text import t, t_or
from spec_core import measurement as lab
from spec_core.measurement import Line, Measurement, Point
from spec_core.presets import Tried
from spec_core.trace import DepthCount, PassKind

FONT = "'Source Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"
FORMS = {"chain": ("solid", "circle"), "tree": ("dash", "square")}
LAYERS = {1: ("dot", "triangle-down"), 2: ("dashdot", "diamond"), 3: ("dash", "cross"), 4: ("longdash", "x")}
DEEPEST = ("solid", "star")
PLAIN_DASHES, PLAIN_MARKS = ("solid", "dash", "dot", "dashdot"), ("circle", "square", "diamond", "triangle-up")
KINDS: tuple[PassKind, ...] = ("draft", "head", "target", "host")
HATCH = {"draft": "", "head": "/", "target": "", "host": ""}

Row = dict[str, str | int | float]


@dataclass(frozen=True)
class Chart:
    """A figure, what it shows in words, and its numbers as rows."""

    figure: go.Figure
    alt: str
    rows: list[Row]


def show(chart: Chart, key: str) -> None:
    """The figure alone; its `twin` has the numbers."""
    st.plotly_chart(chart.figure, theme=None, config={"displayModeBar": False}, alt=chart.alt, key=f"chart.{key}")


def twin(chart: Chart, key: str) -> None:
    """The chart's numbers as a table and as a file."""
    with st.expander(t("table.depths")):
        st.download_button("CSV", csv_bytes(chart.rows), f"{key}.csv", "text/csv", key=f"csv.{key}", on_click="ignore")
        st.table(chart.rows)


def csv_bytes(rows: Sequence[Row]) -> bytes:
    """With a byte order mark: spreadsheets then read Chinese headings."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode("utf-8-sig")


def name(line: Line) -> str:
    """A curve in words: method, form, layers."""
    method = t_or(f"method.{line.method}.title", line.method)
    return t(f"curve.{line.form}", {"method": method, "layers": line.layers})


def style(line: Line) -> tuple[str, str]:
    """Dash and marker."""
    return LAYERS.get(line.layers, DEEPEST) if line.form == "block" else FORMS[line.form]


def layout(ground: Theme, x: dict[str, object], y: dict[str, object], height: int) -> dict[str, object]:
    grid = {"gridcolor": ground.line, "zeroline": False, "fixedrange": True}
    return {
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": ground.ink, "size": 13, "family": FONT},
        "hoverlabel": {"bgcolor": ground.paper, "font": {"color": ground.ink}},
        "margin": {"l": 60, "r": 12, "t": 12, "b": 46},
        "xaxis": {**grid, **x},
        "yaxis": {**grid, **y},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
    }


def lengths_axis(title: str, log: bool = False) -> dict[str, object]:
    """Draft lengths from 1 to 31; plotly wants the exponents where it counts in powers."""
    ends = [math.log10(0.9), math.log10(36)] if log else [0, 32.5]
    return {"title": title, "type": "log" if log else "linear", "tickvals": [1, 2, 4, 8, 16, 24, 31], "range": ends}


def ms_axis(points: Sequence[Point], log: bool = False) -> dict[str, object]:
    """Milliseconds up to the slowest median; a quartile of a busy moment may stand out above."""
    times = [p.median for p in points if p.median > 0] or [1.0]
    ends = [math.log10(min(times) / 1.3), math.log10(max(times) * 1.5)] if log else [0.0, max(times) * 1.15]
    return {"title": t("lab.y"), "type": "log" if log else "linear", "range": ends, "dtick": "D2" if log else None}


@dataclass(frozen=True)
class Pen:
    """How a curve is drawn: hue for the method, dash and marker for all else."""

    colour: str
    dash: str
    mark: str
    width: float = 2.4


def stroke(title: str, pairs: Sequence[tuple[float, float]], said: list[str], pen: Pen) -> go.Scatter:
    """A curve with a sentence per point."""
    return go.Scatter(
        x=[x for x, _ in pairs],
        y=[y for _, y in pairs],
        name=title,
        text=said,
        hovertemplate="%{text}<extra></extra>",
        mode="lines+markers",
        line={"color": pen.colour, "dash": pen.dash, "width": pen.width},
        marker={"symbol": pen.mark, "size": 3.2 * pen.width, "color": pen.colour},
    )


def pen_of(line: Line, ground: Theme, width: float = 2.4) -> Pen:
    return Pen(look(line.method, ground).fill, *style(line), width)


def upright(figure: go.Figure, at: int, ground: Theme) -> None:
    """The dotted line at a chosen length."""
    line = {"color": ground.muted, "dash": "dot"}
    figure.add_shape(type="line", x0=at, x1=at, y0=0, y1=1, yref="paper", line=line)


def chosen(found: Measurement, layers: int) -> list[Line]:
    """The curves to be drawn: of blocks those with at most that many layers."""
    return [line for line in lab.lines(found) if line.form != "block" or line.layers <= layers]


@once(64)
def latency(
    shown: Measurement, overlays: Sequence[Measurement], context: int, layers: int, mark: int, log: bool
) -> Chart:
    """Draft latency against draft length; the dotted upright stands at the chosen block size."""
    ground, rows = theme(), []
    both = [(one, near(one, context)) for one in (shown, *overlays)]
    every = [p for one, behind in both for line in lab.lines(one) for p in lab.curve(one, line, behind)]
    figure = blank(layout(ground, lengths_axis(t("lab.x"), log), ms_axis(every, log), 430))
    for place, (one, behind) in enumerate(both):
        for line in chosen(one, layers):
            points = lab.curve(one, line, behind)
            add_curve(figure, line, points, ground, one if place else None)
            rows += [latency_row(one, line, p) for p in points]
    upright(figure, mark, ground)
    said = {"text": t("lab.mark", {"k": mark}), "font": {"color": ground.muted, "size": 12}, "showarrow": False}
    where = {"x": math.log10(mark) if log else mark, "y": 1, "yref": "paper", "xshift": 4}
    figure.add_annotation(**said, **where, xanchor="left", yanchor="top")
    return Chart(figure, t("lab.alt"), rows)


def near(found: Measurement, context: int) -> int:
    """The measured context length nearest to `context`."""
    return min(lab.contexts(found), key=lambda known: abs(known - context), default=context)


def add_curve(figure: go.Figure, line: Line, points: list[Point], ground: Theme, other: Measurement | None) -> None:
    """One curve with its quartiles; one of another machine is thinner, and its name says whose it is."""
    title = name(line) if other is None else f"{name(line)} · {other.setup.device}"
    fill = look(line.method, ground).fill
    spread = {
        "array": [p.high - p.median for p in points],
        "arrayminus": [p.median - p.low for p in points],
        "thickness": 1,
        "width": 2,
        "color": fill,
    }
    pairs = [(p.task.length, p.median) for p in points]
    said = [latency_hover(title, p) for p in points]
    pen = pen_of(line, ground, 1.4 if other else 2.4)
    figure.add_trace(stroke(title, pairs, said, pen).update(error_y=spread))


def latency_hover(title: str, p: Point) -> str:
    return t("lab.hover", {"name": title, "k": p.task.length, "ms": p.median, "low": p.low, "high": p.high, "n": p.n})


def latency_row(found: Measurement, line: Line, p: Point) -> Row:
    parts: Row = {f"{t(f'kind.{kind}')} (ms)": round(p.split.get(kind, 0.0), 3) for kind in ("draft", "head", "host")}
    return {
        t("table.method"): name(line),
        t("lab.device"): found.setup.device,
        t("lab.context"): p.task.context,
        "K": p.task.length,
        t("lab.median"): round(p.median, 3),
        t("lab.low"): round(p.low, 3),
        t("lab.high"): round(p.high, 3),
        "n": p.n,
        **parts,
    }


@once(64)
def split(found: Measurement, context: int, layers: int, length: int) -> Chart:
    """One whole step of every method, stacked: draft layers, LM head, the target's check, the rest."""
    ground, lines = theme(), chosen(found, layers)
    steps = {line: whatif.outcome(found, line, context, [], whatif.Settings(length)) for line in lines}
    kept = {line: parts(one) for line, one in steps.items() if one}
    high = max((sum(one.values()) for one in kept.values()), default=1.0)
    axis = {"title": t("split.x", {"k": length}), "range": [0, high * 1.03]}
    figure = blank(layout(ground, axis, {"autorange": "reversed", "ticksuffix": "  "}, 90 + 34 * max(3, len(kept))))
    figure.update_layout(barmode="stack", bargap=0.3, margin_l=140)
    for kind in KINDS:
        add_bars(figure, kind, {line: one[kind] for line, one in kept.items()}, ground)
    rows: list[Row] = [
        {t("table.method"): name(line), **{f"{t(f'kind.{kind}')} (ms)": round(ms, 3) for kind, ms in one.items()}}
        for line, one in kept.items()
    ]
    return Chart(figure, t("split.alt"), rows)


def add_bars(figure: go.Figure, kind: PassKind, values: dict[Line, float], ground: Theme) -> None:
    """One kind's part of every bar, and its entry in the legend, which wears no method's hue."""
    title, names = t(f"kind.{kind}"), [name(line) for line in values]
    pairs = zip(names, values.values(), strict=True)
    figure.add_bar(
        y=names,
        x=list(values.values()),
        orientation="h",
        name=title,
        showlegend=False,
        text=[t("split.hover", {"name": n, "kind": title, "ms": ms}) for n, ms in pairs],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
        marker=paint(kind, list(values), ground),
    )
    figure.add_bar(y=[None], x=[None], name=title, marker=legend_paint(kind, ground))


def parts(one: whatif.Outcome) -> dict[PassKind, float]:
    return {"draft": one.draft, "head": one.head, "target": one.verify, "host": one.host}


def paint(kind: PassKind, lines: Sequence[Line], ground: Theme) -> dict[str, object]:
    """Draft and head wear the method's hue, the head hatched; the target is ink; the rest is empty."""
    fills = [look(line.method, ground).fill for line in lines]
    plain = {"draft": fills, "head": fills, "target": [ground.ink] * len(fills), "host": [ground.paper] * len(fills)}
    edge = ground.muted if kind == "host" else ground.ink
    shape = {"shape": HATCH[kind], "fgcolor": ground.paper, "solidity": 0.45, "size": 5}
    return {"color": plain[kind], "pattern": shape, "line": {"color": edge, "width": 1}}


def legend_paint(kind: PassKind, ground: Theme) -> dict[str, object]:
    colour = {"target": ground.ink, "host": ground.paper}.get(kind, ground.muted)
    shape = {"shape": HATCH[kind], "fgcolor": ground.paper, "solidity": 0.45, "size": 5}
    return {"color": colour, "pattern": shape, "line": {"color": ground.muted, "width": 1}}


@once(64)
def heads(found: Measurement) -> Chart:
    """The LM-head lesson: K calls of one row against one call of K rows, for every head there is."""
    ground, rows = theme(), []
    ways = {"calls": ("solid", "circle"), "rows": ("dash", "square")}
    curves = {(form, words): points for form in ways for words, points in lab.heads(found, form).items()}  # type: ignore[arg-type]
    every = [p for points in curves.values() for p in points]
    figure = blank(layout(ground, lengths_axis(t("heads.x")), ms_axis(every), 340))
    for (form, words), points in curves.items():
        title, fill = t(f"heads.{form}", {"words": words}), look(owner(found, words), ground).fill
        pairs = [(p.task.length, p.median) for p in points]
        figure.add_trace(stroke(title, pairs, [latency_hover(title, p) for p in points], Pen(fill, *ways[form])))
        rows += [{t("heads.words"): words, t("heads.how"): title, **timing(p)} for p in points]
    return Chart(figure, t("heads.alt"), rows)


def timing(p: Point) -> Row:
    return {"K": p.task.length, t("lab.median"): round(p.median, 4), "n": p.n}


def owner(found: Measurement, words: int) -> str:
    """Whose head has that many words; the last method that reads it lends its hue."""
    return next((key for key, card in reversed(found.setup.drafters.items()) if card.vocab == words), "")


@once(64)
def speedups(curves: dict[Line, list[float]], mark: int) -> Chart:
    """MODEL: speed against plain decoding by draft length, the best point marked. Below 1 speculation loses."""
    ground, rows = theme(), []
    high = max((value for values in curves.values() for value in values), default=1.0)
    y = {"title": t("whatif.y"), "range": [0, max(1.5, high * 1.1)]}
    figure = blank(layout(ground, lengths_axis(t("lab.x")), y, 380))
    losing = {"fillcolor": ground.line, "opacity": 0.35, "line_width": 0, "layer": "below"}
    figure.add_shape(type="rect", x0=0, x1=32.5, y0=0, y1=1, **losing)
    figure.add_shape(type="line", x0=0, x1=32.5, y0=1, y1=1, line={"color": ground.ink, "width": 1.5})
    loses = {"text": t("whatif.loses"), "showarrow": False, "font": {"color": ground.muted}}
    figure.add_annotation(x=32.3, y=1, xanchor="right", yanchor="top", **loses)
    upright(figure, mark, ground)
    for line, values in curves.items():
        said = [t("whatif.hover", {"name": name(line), "k": k, "x": v}) for k, v in enumerate(values, 1)]
        figure.add_trace(
            stroke(name(line), list(enumerate(values, 1)), said, pen_of(line, ground)).update(mode="lines")
        )
        best = max(range(len(values)), key=values.__getitem__)
        top = stroke(name(line), [(best + 1, values[best])], [said[best]], pen_of(line, ground, 4.0))
        figure.add_trace(top.update(mode="markers", showlegend=False))
        rows += [{t("table.method"): name(line), "K": k, t("whatif.y"): round(v, 4)} for k, v in enumerate(values, 1)]
    return Chart(figure, t("whatif.alt"), rows)


@once(64)
def swept(tried: Sequence[Tried]) -> Chart:
    """Every setting a sweep timed: speed by the tokens it drafts; a star on each method's fastest."""
    ground, rows = theme(), []
    most = max((one.drafted for one in tried), default=1)
    x = {"title": t("sweep.x"), "range": [0, most + 1], "dtick": 1 if most < 12 else 2}
    y = {"title": t("whatif.y"), "range": [0, max([1.2, *(one.speedup * 1.12 for one in tried)])]}
    figure = blank(layout(ground, x, y, 340))
    figure.add_shape(type="line", x0=0, x1=most + 1, y0=1, y1=1, line={"color": ground.ink, "width": 1.5})
    for key in dict.fromkeys(one.method for one in tried):
        title, mine = t_or(f"method.{key}.title", key), [one for one in tried if one.method == key]
        best = max(mine, key=lambda one: one.speedup)
        add_settings(figure, title, mine, best, look(key, ground).fill)
        rows += [sweep_row(title, one, one is best) for one in mine]
    return Chart(figure, t("sweep.alt"), rows)


def add_settings(figure: go.Figure, title: str, mine: list[Tried], best: Tried, fill: str) -> None:
    figure.add_scatter(
        x=[one.drafted for one in mine],
        y=[one.speedup for one in mine],
        name=title,
        text=[sweep_hover(title, one) for one in mine],
        hovertemplate="%{text}<extra></extra>",
        mode="markers",
        marker={
            "color": fill,
            "symbol": ["star" if one is best else "circle-open" for one in mine],
            "size": [15 if one is best else 9 for one in mine],
            "line": {"width": 1.5, "color": fill},
        },
    )


def knobs_text(one: Tried) -> str:
    return ", ".join(
        f"{t_or(f'knob.{key}', key)} {t_or(f'choice.{value}', str(value))}" for key, value in one.knobs.items()
    )


def sweep_hover(title: str, one: Tried) -> str:
    said = {"name": title, "knobs": knobs_text(one), "x": one.speedup, "tau": one.tau, "tps": one.tokens_per_second}
    return t("sweep.hover", said)


def sweep_row(title: str, one: Tried, best: bool) -> Row:
    return {
        t("table.method"): ("★ " if best else "") + title,
        t("sweep.knobs"): knobs_text(one),
        t("sweep.x"): one.drafted,
        t("number.tau"): one.tau,
        t("number.tps"): one.tokens_per_second,
        t("number.speed"): one.speedup,
    }


@dataclass(frozen=True)
class Asked:
    """At x so many guesses were put to the target, and so many held."""

    x: float
    asked: int
    held: int


@dataclass(frozen=True)
class Shares:
    """A curve of shares in the hue of `method`."""

    method: str
    title: str
    points: list[Asked]


def counts(found: Sequence[DepthCount]) -> list[Asked]:
    return [Asked(c.depth, c.tested, c.accepted) for c in found]


def shares(x: str, curves: Sequence[Shares], unit: bool) -> Chart:
    """Shares that held, by x: of guesses by their probability (`unit`; on the dotted line both are equal), or of places
    by their depth."""
    ground, rows = theme(), []
    deepest = max((p.x for curve in curves for p in curve.points), default=1)
    ends = {"range": [-0.03, 1.03], "tickformat": ".0%"} if unit else {"range": [0.5, deepest + 0.5], "dtick": 1}
    y = {"title": t("chart.y"), "range": [-0.03, 1.03], "tickformat": ".0%"}
    figure = blank(layout(ground, {"title": x, **ends}, y, 340))
    if unit:
        figure.add_shape(type="line", x0=0, y0=0, x1=1, y1=1, line={"dash": "dot", "width": 1, "color": ground.muted})
    for place, curve in enumerate(curves):
        pen = Pen(look(curve.method, ground).fill, PLAIN_DASHES[place % 4], PLAIN_MARKS[place % 4])
        said = [share_hover(curve.title, x, p) for p in curve.points]
        pairs = [(p.x, p.held / p.asked) for p in curve.points]
        figure.add_trace(stroke(curve.title, pairs, said, pen))
        rows += [share_row(curve.title, x, p, "table." if unit else "places.") for p in curve.points]
    return Chart(figure, t("share.alt", {"x": x}), rows)


def share_hover(title: str, x: str, p: Asked) -> str:
    return t("share.hover", {"name": title, "x": x, "at": p.x, "held": p.held, "of": p.asked})


def share_row(title: str, x: str, p: Asked, what: str) -> Row:
    return {
        t("table.method"): title,
        x: round(p.x, 3),
        t(f"{what}tested"): p.asked,
        t(f"{what}held"): p.held,
        t("chart.y"): round(p.held / p.asked, 4),
    }
