"""Finished runs as cards: title, numbers, text, where the time went; below them one chart, with tables beside it."""

import html
from collections.abc import Mapping, Sequence
from functools import partial

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.elements.lib.mutable_expander_container import ExpanderContainer

from pages.parts import facts, source
from pages.parts.colours import BOTH, either, look, theme
from pages.parts.paper import blank
from pages.parts.state import Origin
from pages.parts.text import Value, t, t_or
from pages.parts.tokens import text_html
from spec_core.trace import (
    Card,
    DepthCount,
    Trace,
    accepted_by_depth,
    baseline,
    comparable,
    ids,
    rows,
    tau,
    tokens_per_second,
)

ASKED = 150  # letters of a prompt that are always in sight
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
FONT = "'Source Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"


def say(key: str, values: Mapping[str, Value] | None = None) -> str:
    """A text of the catalogue, safe inside HTML."""
    return html.escape(t(key, values))


def title(card: Card) -> str:
    return t_or(f"method.{card.key}.title", card.title)


def variables(card: Card) -> str:
    """A method's colours, for everything inside an element."""
    of = either(card.key)
    colours = {"hue": of.text, "fill": of.fill, "tint": of.tint, "muted": BOTH.muted, "ink": BOTH.ink}
    return ";".join(f"--{name}:{value}" for name, value in {**colours, "line": BOTH.line}.items())


def frame(card: Card, inner: str) -> str:
    name = html.escape(title(card))
    return f'<section class="ds-card" style="{variables(card)}" aria-label="{name}">{inner}</section>'


def heading(card: Card, remark: str = "") -> str:
    name = html.escape(title(card))
    return f'<header><h2><i class="ds-swatch"></i>{name}</h2><span class="ds-badge">{remark}</span></header>'


def growing(trace: Trace, bar: DeltaGenerator, view: DeltaGenerator, label: Mapping[str, Value], budget: int) -> None:
    """A run in hand: how far it is, and its text so far."""
    done = len(ids(trace))
    bar.progress(min(1.0, done / budget), t("progress.run", {**label, "tokens": done}))
    card = trace.header.method
    text = text_html(trace, look(card.key, theme()))
    view.html(frame(card, heading(card) + f'<div class="ds-growing">{text}</div>'))


def asked(trace: Trace) -> None:
    """The prompt; a long one folded to its beginning, which opens to all of it."""
    text = trace.header.prompt.text.strip()
    first = text[:ASKED].rsplit(None, 1)[0] if len(text) > ASKED else text
    whole = html.escape(text).replace("\n", "<br>")
    shown = f"<summary>{html.escape(first)} …</summary>{whole}" if first != text else whole
    kind = "p" if first == text else "details"
    st.html(f'<{kind} class="ds-asked">{shown}</{kind}>')


def draw(traces: Sequence[Trace], origin: Origin) -> None:
    """The scores on one scale, the texts, the chart, and everything once more as tables and files."""
    st.html(scores(traces, origin) + legend())
    for trace in traces:
        st.html(card_html(trace, baseline(traces, trace), origin))
    draw_depths(traces)
    with fold("table.runs") as part:
        if part.open:
            st.table(numbers_table(traces))


def fold(name: str) -> ExpanderContainer:
    """A part made once it is opened: charts and tables bring megabytes of script, and the picture comes first."""
    return st.expander(t(name), key=f"fold.{name}", on_change="rerun")


def save_button(trace: Trace, place: int) -> None:
    head = trace.header
    st.download_button(
        title(head.method),
        partial(source.file_bytes, trace),
        f"{head.method.key}-{head.id}.jsonl.gz",
        "application/gzip",
        key=f"save.{place}.{head.id}",
        on_click="ignore",
        icon=":material/download:",
    )


def scores(traces: Sequence[Trace], origin: Origin) -> str:
    """One line per run. All bars share one scale of time per token, so the shorter bar is the faster run."""
    slowest = max(map(facts.ms_per_token, traces)) or 1.0
    names = ("table.method", "score.bar", "number.speed", "number.tau", "number.tps", "number.steps", "table.proof")
    head = "".join(f'<th scope="col">{say(name)}</th>' for name in names)
    body = "".join(score_row(trace, baseline(traces, trace), slowest) for trace in traces)
    seen = dict.fromkeys(badge(trace, origin) for trace in traces)
    style = variables(traces[0].header.method)
    return (
        f'<table class="ds-scores" style="{style}"><caption>{"<br>".join(seen)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def score_row(trace: Trace, plain: Trace | None, slowest: float) -> str:
    card = trace.header.method
    speed = f"{facts.speedup(trace, plain):.2f}×" if plain and comparable(trace, plain) else "–"
    verdict = facts.proof(trace, plain).verdict
    mark = "✓ " if verdict in ("identical", "near") else "✗ " if verdict == "differs" else ""
    steps = max(0, len(trace.steps) - 1)
    cells = (speed, f"{tau(trace):.2f}", f"{tokens_per_second(trace):.1f}", str(steps), mark + say(f"short.{verdict}"))
    return (
        f'<tr style="{variables(card)}"><th scope="row"><i class="ds-swatch"></i>{html.escape(title(card))}</th>'
        f"<td>{bar(trace, slowest)}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    )


def badge(trace: Trace, origin: Origin) -> str:
    head = trace.header
    busy = " · " + say("badge.contended") if head.contended else ""
    return say(f"badge.{origin}", {"device": head.device, "date": head.date}) + busy


def legend() -> str:
    ground = theme()
    drafted, added = say("legend.drafted"), say("legend.bonus")
    style = f"--hue:{ground.ink};--tint:{ground.line};--muted:{ground.muted}"
    return (
        f'<p class="ds-legend" style="{style}"><span class="ds-draft">{drafted}</span> '
        f'<span class="ds-ink">{added}</span></p>'
    )


def card_html(trace: Trace, plain: Trace | None, origin: Origin) -> str:
    head = trace.header
    of = look(head.method.key, theme())
    parts = [heading(head.method, badge(trace, origin)), text_html(trace, of), time_keys(trace)]
    parts += [f'<p class="ds-{kind}">{html.escape(text)}</p>' for kind, text in remarks(trace, plain)]
    return frame(head.method, "".join(parts))


def shares(trace: Trace) -> dict[str, float]:
    """Every kind of pass that takes at least a thousandth of the time, with its share."""
    steps = facts.per_step(trace)
    whole = sum(steps.values()) or 1.0
    return {kind: ms / whole for kind, ms in steps.items() if ms / whole >= 0.001}


def bar(trace: Trace, slowest: float) -> str:
    width = 100 * facts.ms_per_token(trace) / slowest
    parts = (f'<i class="ds-{kind}" style="width:{100 * share:.2f}%"></i>' for kind, share in shares(trace).items())
    return f'<div class="ds-bar" aria-hidden="true" style="width:{width:.2f}%">{"".join(parts)}</div>'


def time_keys(trace: Trace) -> str:
    """The bar in words: milliseconds per token, by kind of pass."""
    total = facts.ms_per_token(trace)
    keys = (
        f'<span><i class="ds-{kind}"></i>{say(f"kind.{kind}")} {share * total:.1f} ms</span>'
        for kind, share in shares(trace).items()
    )
    return f'<p class="ds-keys"><b>{say("split", {"ms": total})}</b>{"".join(keys)}</p>'


def remarks(trace: Trace, plain: Trace | None) -> list[tuple[str, str]]:
    """What must be said about a run, each with its look: proof, why it lost, what makes its numbers doubtful."""
    said = [proof_text(facts.proof(trace, plain))]
    if plain and (slow := facts.slowness(trace, plain)):
        said.append(("note", slow_text(slow, rows(trace))))
    if trace.end and trace.end.reason == "cancelled":
        said.append(("note", t("note.cancelled")))
    if trace.header.contended:
        said.append(("note", t("note.contended")))
    if plain and facts.implausible(trace, plain):
        said.append(("alarm", t("note.implausible")))
    if facts.looping(ids(trace)):
        said.append(("note", t("note.loop")))
    if outside := sum(len(step.beyond) for step in trace.steps):
        said.append(("note", t("beyond.note", {"n": outside, "all": len(ids(trace))})))
    return said


def proof_text(proof: facts.Proof) -> tuple[str, str]:
    where, gap = (proof.where.position + 1, proof.where.gap) if proof.where else (0, 0.0)
    kind = {"identical": "proof", "near": "proof", "differs": "alarm"}.get(proof.verdict, "note")
    return kind, t(f"proof.{proof.verdict}", {"tokens": proof.tokens, "where": where, "gap": gap})


def slow_text(slow: facts.Slowness, rows: int) -> str:
    values: dict[str, Value] = {"ratio": slow.ratio, "tau": slow.tau, "share": slow.share, "rows": rows}
    return t(f"slow.{slow.kind}", {**values, "step": slow.step_ms, "plain": slow.plain_ms})


def draw_depths(traces: Sequence[Trace]) -> None:
    """How often a guess holds, by how far ahead it was made; runs that never drafted are left out."""
    counted = [(trace, counts) for trace in traces if (counts := accepted_by_depth([trace]))]
    if not counted:
        return
    with fold("chart.title") as part:
        if part.open:
            st.markdown(t("chart.lead"))
            st.plotly_chart(
                depths_figure(counted), theme=None, config={"displayModeBar": False}, alt=t("chart.alt"), key="depths"
            )
    with fold("table.depths") as part:
        if part.open:
            st.table(depths_table(traces))


def depths_figure(counted: Sequence[tuple[Trace, list[DepthCount]]]) -> "go.Figure":  # unquoted it would be imported
    deepest = max(count.depth for _, counts in counted for count in counts)
    figure = blank(chart_layout(deepest))
    for place, (trace, counts) in enumerate(counted):
        name, of = title(trace.header.method), look(trace.header.method.key, theme())
        hover = [t("chart.hover", {"name": name, "depth": c.depth, "held": c.accepted, "of": c.tested}) for c in counts]
        figure.add_scatter(
            x=[c.depth for c in counts],
            y=[c.accepted / c.tested for c in counts],
            name=name,
            text=hover,
            hovertemplate="%{text}<extra></extra>",
            mode="lines+markers",
            line={"color": of.fill, "dash": DASHES[place % len(DASHES)], "width": 2.5},
            marker={"size": 9, "symbol": SYMBOLS[place % len(SYMBOLS)]},
        )
    return figure


def chart_layout(deepest: int) -> dict[str, object]:
    ground = theme()
    grid = {"gridcolor": ground.line, "zeroline": False, "fixedrange": True}
    return {
        "height": 300,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": ground.ink, "size": 13, "family": FONT},
        "hoverlabel": {"bgcolor": ground.paper, "font": {"color": ground.ink}},
        "margin": {"l": 60, "r": 10, "t": 10, "b": 50},
        "xaxis": {**grid, "title": t("chart.x"), "range": [0.5, deepest + 0.5], "dtick": 1},
        "yaxis": {**grid, "title": t("chart.y"), "range": [-0.03, 1.03], "tickformat": ".0%"},
        "legend": {"orientation": "h", "y": 1.18},
    }


def numbers_table(traces: Sequence[Trace]) -> list[dict[str, str]]:
    return [numbers_row(trace, baseline(traces, trace)) for trace in traces]


def numbers_row(trace: Trace, plain: Trace | None) -> dict[str, str]:
    split = {t(f"kind.{kind}") + " (ms)": f"{ms:.1f}" for kind, ms in facts.per_step(trace).items()}
    return {
        t("table.method"): title(trace.header.method),
        t("number.speed"): f"{facts.speedup(trace, plain):.2f}" if plain and comparable(trace, plain) else "–",
        t("number.tau"): f"{tau(trace):.2f}",
        t("number.tps"): f"{tokens_per_second(trace):.1f}",
        t("number.first"): "–" if (first := facts.first_token_ms(trace)) is None else f"{first:.0f}",
        t("number.steps"): str(max(0, len(trace.steps) - 1)),
        t("number.count"): str(len(ids(trace))),
        **split,
        t("table.proof"): t(f"short.{facts.proof(trace, plain).verdict}"),
    }


def depths_table(traces: Sequence[Trace]) -> list[dict[str, str]]:
    return [
        {
            t("table.method"): title(trace.header.method),
            t("chart.x"): str(count.depth),
            t("places.tested"): str(count.tested),
            t("places.held"): str(count.accepted),
            t("chart.y"): f"{count.accepted / count.tested:.0%}",
        }
        for trace in traces
        for count in accepted_by_depth([trace])
    ]
