"""How cost grows with the work: drafts and passes over the tokens before them, and a tree's step over its budget."""

import math
from collections.abc import Sequence

import plotly.graph_objects as go
import streamlit as st

from pages.parts import charts
from pages.parts.charts import Chart, Pen, Row
from pages.parts.colours import Theme, look, theme
from pages.parts.findings import badge
from pages.parts.machines import Machine
from pages.parts.once import once
from pages.parts.paper import blank
from pages.parts.text import t, t_or
from spec_core import measurement as timed
from spec_core.measurement import Measurement, Point

LENGTH = 8  # of the drafts compared
ROWS = ((1, "solid", "circle"), (16, "dash", "square"))  # target passes, and how they are drawn


def over(title: str, ticks: Sequence[int]) -> dict[str, object]:
    """An axis that counts in doublings."""
    ends = [math.log10(min(ticks) / 1.2), math.log10(max(ticks) * 1.2)]
    return {"title": title, "type": "log", "tickvals": list(ticks), "range": ends}


@once(16)
def by_context(found: Measurement) -> Chart | None:
    """A draft of 8 tokens and target passes against the tokens cached; None where one context alone was measured."""
    drafts = timed.by_context(found, LENGTH)
    passes = {rows: timed.passes_by_context(found, rows) for rows, *_ in ROWS}
    every = [p for points in (*drafts.values(), *passes.values()) for p in points]
    if not drafts:
        return None
    ground, ticks = theme(), sorted({p.task.context for p in every})
    figure = blank(charts.layout(ground, over(t("costs.context"), ticks), charts.ms_axis(every), 380))
    rows: list[Row] = []
    for line, points in drafts.items():
        rows += add(figure, charts.name(line), points, charts.pen_of(line, ground))
    for count, dash, mark in ROWS:
        if passes[count]:
            rows += add(figure, t("costs.rows", {"rows": count}), passes[count], Pen(ground.ink, dash, mark))
    return Chart(figure, t("costs.context.alt"), rows)


def add(figure: go.Figure, title: str, points: Sequence[Point], pen: Pen) -> list[Row]:
    pairs = [(p.task.context, p.median) for p in points]
    said = [t("costs.hover", {"name": title, "context": p.task.context, "ms": p.median, "n": p.n}) for p in points]
    figure.add_trace(charts.stroke(title, pairs, said, pen))
    return [{t("table.what"): title, t("lab.context"): p.task.context, **numbers(p)} for p in points]


def numbers(p: Point) -> Row:
    return {t("lab.median"): round(p.median, 3), t("lab.low"): round(p.low, 3), t("lab.high"): round(p.high, 3)}


@once(16)
def by_budget(found: Measurement) -> Chart | None:
    """One step of a published tree against the nodes it keeps: growing it, and the pass that checks it, stacked."""
    trees = timed.budgets(found)
    checks = {p.task.length: p for p in timed.targets(found, trees[0].task.context)} if trees else {}
    steps = [(tree, checks[tree.rows]) for tree in trees if tree.rows in checks]
    if not steps:
        return None
    ground, names = theme(), [str(tree.task.length) for tree, _ in steps]
    high = max(tree.median + check.median for tree, check in steps)
    y = {"title": t("lab.y"), "range": [0, high * 1.1]}
    axis: dict[str, object] = {"title": t("costs.budget"), "type": "category"}
    figure = blank(charts.layout(ground, axis, y, 340)).update_layout(barmode="stack", bargap=0.35)
    stack(
        figure, t("costs.tree"), names, [tree for tree, _ in steps], look(steps[0][0].task.method, ground).fill, ground
    )
    stack(figure, t("costs.check"), names, [check for _, check in steps], ground.muted, ground)
    return Chart(figure, t("costs.budget.alt"), [budget_row(tree, check) for tree, check in steps])


def stack(figure: go.Figure, title: str, names: list[str], points: Sequence[Point], fill: str, ground: Theme) -> None:
    said = [t("costs.bar", {"name": title, "nodes": n, "ms": p.median}) for n, p in zip(names, points, strict=True)]
    edge = {"width": 1, "color": ground.ink}
    figure.add_bar(
        x=names,
        y=[p.median for p in points],
        name=title,
        text=said,
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
        marker={"color": fill, "line": edge},
    )


def budget_row(tree: Point, check: Point) -> Row:
    return {
        t("table.method"): t_or(f"method.{tree.task.method}.title", tree.task.method),
        t("costs.budget"): tree.task.length,
        f"{t('costs.tree')} (ms)": round(tree.median, 2),
        f"{t('costs.check')} (ms)": round(check.median, 2),
        t("costs.node"): round((tree.median + check.median) / tree.task.length, 2),
    }


def section(one: Machine) -> None:
    """Both charts, each with its table; nothing where the measurement holds neither."""
    found = {"context": by_context(one.measurement), "budget": by_budget(one.measurement)}
    drawn = {name: chart for name, chart in found.items() if chart}
    if not drawn:
        return
    st.subheader(t("costs.title"), anchor=False)
    st.markdown(t("costs.lead"))
    for name, chart in drawn.items():
        st.markdown(f"**{t(f'costs.{name}.title')}** – {t(f'costs.{name}.lead')}")
        charts.show(chart, f"costs {name}")
        st.caption(badge(one) + memory(one))
        charts.twin(chart, f"costs {name}")


def memory(one: Machine) -> str:
    """The most memory the measuring process held, weights included."""
    finish = one.measurement.finish
    return " · " + t("costs.memory", {"mb": finish.peak_memory_mb}) if finish and finish.peak_memory_mb else ""
