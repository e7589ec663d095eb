"""Charts below the lessons on the EAGLE family, from recordings."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from pages.parts import cards, charts, recorded, source, whatif
from pages.parts.address import a_number_of, note, one_of, restore
from pages.parts.colours import look, theme
from pages.parts.findings import PUBLISHED, recordings, share_of
from pages.parts.paper import blank
from pages.parts.stage import stage
from pages.parts.text import say, t, t_or
from pages.pictures import twins
from pages.pictures.step import spell
from spec_core.trace import Trace, accepted_by_depth, tau, time_split, words

MOST = 10  # tokens named as examples


def depths(methods: Sequence[str]) -> None:
    """Of the guesses put to the target at each depth, the share that held."""
    found = {key: traces for key in methods if (traces := recordings(key, PUBLISHED))}
    if not found:
        return
    st.subheader(t("chart.title"), anchor=False)
    st.markdown(t("chart.lead"))
    counts = {key: accepted_by_depth(traces) for key, traces in found.items()}
    enough = {key: [one for one in many if one.tested >= whatif.FEWEST] for key, many in counts.items()}
    curves = [share_of(key, charts.counts(many)) for key, many in enough.items() if many]
    chart = charts.shares(t("chart.x"), curves, unit=False)
    charts.show(chart, "depth")
    few = t("eagle.few", {"n": whatif.FEWEST})
    st.caption(f"{cards.badge(next(iter(found.values()))[0], 'replay')} · {few}")
    charts.twin(chart, "depth")


def confidence(method: str) -> None:
    """Guesses by the drafter's confidence: the share of each group that held."""
    traces = recordings(method, PUBLISHED)
    if not traces:
        return
    st.subheader(t("eagle2.sure"), anchor=False)
    st.markdown(t("eagle2.sure.lead"))
    bins = [charts.Asked(b.mean, b.tested, b.accepted) for b in whatif.calibration(traces)]
    chart = charts.shares(t("sure.x"), [share_of(method, bins)], unit=True)
    charts.show(chart, "sure")
    st.caption(cards.badge(traces[0], "replay"))
    charts.twin(chart, "sure")


def hedged(method: str, variant: str) -> None:
    """What the tree buys: the published run beside its chain, on the prompt of both."""
    card = source.methods()[method].lessons.get(variant)
    prompt = card.prompt if card else ""
    runs = {name: recorded.recording(prompt, method, name) for name in (PUBLISHED, variant)}
    rows = {t(f"eagle.hedged.{name}"): numbers(run) for name, run in runs.items() if run}
    if len(rows) < len(runs):
        return
    st.subheader(t("eagle.hedged"), anchor=False)
    st.markdown(t("eagle.hedged.lead", {"prompt": t_or(f"trace.{prompt}", prompt)}))
    st.table([{t("knob.shape"): name, **row} for name, row in rows.items()])
    st.caption(cards.badge(next(run for run in runs.values() if run), "replay"))


@dataclass(frozen=True)
class Turned:
    """A run of the same prompt with one knob at `value`."""

    value: int
    trace: Trace


def turned(method: str, knob: str) -> list[Turned]:
    """The recordings in which only `knob` differs from the paper's, the published one among them, by value."""
    card = source.methods()[method]
    wanted = {name: v for name, v in card.lessons.items() if set(v.knobs) == {knob}}
    prompts = {variant.prompt for variant in wanted.values()}
    names = [(variant.prompt, name) for name, variant in wanted.items()] + [(prompt, PUBLISHED) for prompt in prompts]
    found = [recorded.recording(prompt, method, name) for prompt, name in names]
    runs = [Turned(int(trace.header.knobs[knob]), trace) for trace in found if trace]
    return sorted(runs, key=lambda run: run.value)


def turn(method: str, knobs: Sequence[str]) -> None:
    """One knob at a time: a slider over what was recorded, the numbers there, and the curve of all values."""
    st.subheader(t("eagle2.knobs"), anchor=False)
    runs = {knob: found for knob in knobs if len(found := turned(method, knob)) > 1}
    if not runs:
        st.info(t("eagle2.none"))
        return
    st.markdown(t("eagle2.knobs.lead"))
    left, right = st.columns([3, 8], gap="medium")
    with left:
        knob = choose_knob(list(runs))
        chosen = choose_value(knob, runs[knob])
        st.table(numbers(chosen.trace))
    with right:
        chart = curve(knob, runs[knob], chosen.value)
        charts.show(chart, "turned")
        st.caption(cards.badge(chosen.trace, "replay"))
    charts.twin(chart, "turned")
    side_by_side(runs[knob], chosen)


def side_by_side(runs: Sequence[Turned], chosen: Turned) -> None:
    """The published tree and the chosen one in two places of the text."""
    published = source.methods()[chosen.trace.header.method.key].published
    first = next((run for run in runs if run.trace.header.knobs == published), None)
    if first is None or first is chosen or not twins.places((first.trace, chosen.trace)):
        return
    st.markdown(t("eagle2.beside", {"one": first.value, "two": chosen.value}))
    scene = twins.picture((first.trace, chosen.trace), say)
    stage(scene, [chosen.trace.header.method.key], f"turned-{chosen.trace.header.id}", 1, leads=False)


def choose_knob(knobs: list[str]) -> str:
    names = {knob: t(f"knob.{knob}") for knob in knobs}
    restore("turned", one_of(knobs), knobs[0], "turned knob")
    st.segmented_control(t("eagle2.knob"), knobs, format_func=names.__getitem__, required=True, key="turned knob")
    return note("turned", knobs[0], str, "turned knob")


def choose_value(knob: str, runs: list[Turned]) -> Turned:
    """The slider has a stop for every value recorded."""
    by_value = {run.value: run for run in runs}
    middle, state = runs[len(runs) // 2].value, f"turned {knob}"
    restore(knob, a_number_of(list(by_value)), middle, state)
    st.select_slider(t("eagle2.value"), list(by_value), key=state)
    return by_value[note(knob, middle, str, state)]


def numbers(trace: Trace) -> dict[str, str]:
    """What a setting costs and brings, per step."""
    steps = trace.steps[1:]
    split = time_split([trace])
    drafting = split.get("draft", 0.0) + split.get("head", 0.0)
    rows = [len(step.draft.kept) - 1 for step in steps]
    waits = [sum(one.kind == "draft" for one in step.passes) for step in steps]
    looked = [len(s.draft.tokens) - 1 + sum(o.more + len(o.tokens) for o in s.draft.others) for s in steps]
    whole = sum(split.values()) - split.get("record", 0.0)
    return {
        t("eagle2.tau"): f"{tau(trace):.2f}",
        t("eagle2.rows"): f"{max(rows, default=0)}",
        t("eagle2.waits"): f"{max(waits, default=0)}",
        t("eagle2.looked"): f"{max(looked, default=0)}",
        t("eagle2.share"): f"{drafting / whole:.0%}" if whole else "–",
    }


def curve(knob: str, runs: Sequence[Turned], mark: int) -> charts.Chart:
    """Tokens per step by the knob's value; the chosen one is larger."""
    ground = theme()
    name = t(f"knob.{knob}")
    method = runs[0].trace.header.method.key
    high = max(tau(run.trace) for run in runs)
    x: dict[str, object] = {"title": name, "type": "category"}
    y = {"title": t("eagle2.tau"), "range": [0.9, max(2.0, high * 1.08)]}
    figure = blank(charts.layout(ground, x, y, 320))
    said = [t("eagle2.point", {"knob": name, "value": run.value, "tau": tau(run.trace)}) for run in runs]
    pairs = [(run.value, tau(run.trace)) for run in runs]
    line = charts.stroke(name, pairs, said, charts.Pen(look(method, ground).fill, "solid", "circle"))
    sizes = [16 if run.value == mark else 8 for run in runs]
    figure.add_trace(line.update(x=[str(run.value) for run in runs], marker_size=sizes, showlegend=False))
    rows: list[charts.Row] = [{name: str(run.value), **numbers(run.trace)} for run in runs]
    return charts.Chart(figure, t("eagle2.curve.alt"), rows)


def vocabulary(method: str) -> None:
    """Text by text, how many of the target's tokens the drafter has no word for, and which."""
    traces = {prompt: recorded.recording(prompt, method, PUBLISHED) for prompt in recorded.prompts()}
    found = {prompt: trace for prompt, trace in traces.items() if trace and len(trace.steps) > 1}
    if not found:
        return
    first = next(iter(found.values())).header
    st.subheader(t("eagle3.outside"), anchor=False)
    st.markdown(t("eagle3.outside.lead", {"words": first.drafter.vocab if first.drafter else 0}))
    st.table([outside(prompt, trace) for prompt, trace in found.items()])
    st.caption(t("eagle3.outside.badge", {"device": first.device, "date": first.date}))


def outside(prompt: str, trace: Trace) -> dict[str, str]:
    """One text's row."""
    known, steps = words(trace), trace.steps[1:]
    tokens = sum(len(step.committed) for step in steps)
    lacking = [token for step in steps for token in step.beyond]
    named = [spell(known.get(token, f"<{token}>")) for token in dict.fromkeys(lacking)]
    return {
        t("kinds.text"): t_or(f"trace.{prompt}", prompt),
        t("number.count"): str(tokens),
        t("eagle3.count"): f"{len(lacking)} ({len(lacking) / tokens:.0%})" if tokens else "–",
        t("eagle3.ended"): f"{sum(bool(step.beyond) for step in steps)} / {len(steps)}",
        t("eagle3.which"): ", ".join(named[:MOST]) + (" …" if len(named) > MOST else ""),
    }
