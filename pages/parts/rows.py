"""What a target pass costs by the rows in it: measured, between the lines of free rows and of a whole pass for each."""

from collections.abc import Sequence

import streamlit as st

from pages.parts import charts, machines
from pages.parts.colours import theme
from pages.parts.findings import badge, model_badge
from pages.parts.machines import Machine
from pages.parts.once import once
from pages.parts.paper import blank
from pages.parts.text import t
from spec_core import measurement as timed
from spec_core.measurement import Point, Setup

CONTEXT = 256  # cached tokens behind the rows, as near as was measured
USUAL = 8  # rows of a small draft


def section() -> None:
    """The chart for a machine whose target was timed, in few bits too if there is one; and what it says in words."""
    st.subheader(t("rows.title"), anchor=False)
    one, points, few = choose()
    if one is None:
        st.info(t("rows.none"))
        return
    st.markdown(t("rows.lead", {"most": points[-1].task.length}))
    shown = chart(points, few)
    charts.show(shown, "rows")
    modelled = one.measurement.setup.modelled
    said = model_badge(t("split.model")) if modelled else badge(one)
    st.caption(f"{one.measurement.setup.target.id} · {said}  \n{model_badge(t('rows.model'))}")
    turn = doubled(points)
    st.markdown(t("rows.told", told(points)) + (" " + t("rows.turn", {"turn": turn}) if turn else ""))
    if few:
        st.markdown(t("rows.few.told", told(few) | {"left": few[0].median / points[0].median}))
    charts.twin(shown, "rows")


def choose() -> tuple[Machine | None, list[Point], list[Point]]:
    """The reader's own machine, else the first that was timed both ways: its target's passes, and those in few bits."""
    known = [(one, timed.targets(one.measurement, CONTEXT)) for one in machines.machines()]
    known = [(one, points) for one, points in known if len(points) > 1]
    wide = [(one, points) for one, points in known if not one.measurement.setup.few_bits]
    found = [(one, points, beside(one, known)) for one, points in wide]
    first = next((this for this in found if this[2] or this[0].origin != "replay"), None)
    return first or next(iter(found), (None, [], []))


def beside(one: Machine, known: Sequence[tuple[Machine, list[Point]]]) -> list[Point]:
    """What was timed of the same weights, read in few bits; empty where nothing was."""
    return next((few for other, few in known if twins(one.measurement.setup, other.measurement.setup)), [])


def twins(wide: Setup, other: Setup) -> bool:
    """Whether the other one is of the same weights on the same machine, read in few bits."""
    same = (wide.device, wide.target.hash) == (other.device, other.target.hash)
    return same and other.few_bits and wide.dtype == "float32"


def told(points: Sequence[Point]) -> dict[str, float]:
    """What company saves, at the measured row count nearest to a usual draft's."""
    usual = min(points[1:], key=lambda p: abs(p.task.length - USUAL))
    times = usual.median / points[0].median
    return {"rows": usual.task.length, "times": times, "part": times / usual.task.length}


def doubled(points: Sequence[Point]) -> int | None:
    """The rows whose pass takes twice as long as one row's; None where the measured ones do not reach that far."""
    wanted = 2 * points[0].median
    return next((n for n in range(1, points[-1].task.length + 1) if timed.at(points, n) >= wanted), None)


@once(16)
def chart(points: Sequence[Point], few: Sequence[Point] = ()) -> charts.Chart:
    """few: the same weights, read in the few bits they were published with."""
    ground = theme()
    one, most = points[0].median, points[-1].task.length
    axis = {"title": t("rows.x"), "tickvals": [p.task.length for p in points if p.task.length != 2]}
    x = {**axis, "range": [0, most * 1.04]}
    y = {"title": t("lab.y"), "range": [0, max(p.median for p in points) * 1.25]}
    figure = blank(charts.layout(ground, x, y, 380))
    pairs = [(p.task.length, p.median) for p in points]
    said = [t("rows.hover", values(p, one)) for p in points]
    for name, ends in (("full", [(0, 0.0), (most, one * most)]), ("flat", [(1, one), (most, one)])):
        pen = charts.Pen(ground.muted, "dash" if name == "full" else "dot", "circle", 1.4)
        figure.add_trace(charts.stroke(t(f"rows.{name}"), ends, [t(f"rows.{name}")] * 2, pen).update(mode="lines"))
    spread = {"array": [p.high - p.median for p in points], "arrayminus": [p.median - p.low for p in points]}
    pen = charts.Pen(ground.ink, "solid", "circle")
    figure.add_trace(charts.stroke(t("rows.measured"), pairs, said, pen).update(error_y={**spread, "width": 2}))
    rows: list[charts.Row] = [row(p, one) for p in points]
    if few:
        first, pairs = few[0].median, [(p.task.length, p.median) for p in few]
        hover = [t("rows.hover", values(p, first)) for p in few]
        figure.add_trace(charts.stroke(t("rows.few"), pairs, hover, charts.Pen(ground.ink, "dashdot", "square", 1.8)))
        rows = [{t("rows.read"): t("rows.wide"), **row} for row in rows]
        rows += [{t("rows.read"): t("rows.few"), **row(p, first)} for p in few]
    return charts.Chart(figure, t("rows.alt"), rows)


def values(p: Point, one: float) -> dict[str, float]:
    return {"rows": p.task.length, "ms": p.median, "times": p.median / one, "each": p.median / p.task.length}


def row(p: Point, one: float) -> charts.Row:
    found = values(p, one)
    return {
        t("rows.x"): p.task.length,
        t("rows.ms"): round(p.median, 2),
        t("rows.times"): round(found["times"], 2),
        t("rows.each"): round(found["each"], 2),
        "n": p.n,
    }
