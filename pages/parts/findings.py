"""What follows from a measurement, section by section: time split, LM heads, what-if, the sweep, acceptance."""

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts import charts, recorded, source, whatif
from pages.parts.address import a_number_of, note, number, restore
from pages.parts.machines import Machine
from pages.parts.once import once
from pages.parts.state import desk
from pages.parts.text import t, t_or
from spec_core import measurement as timed
from spec_core.measurement import Line, Measurement
from spec_core.presets import read
from spec_core.trace import Trace, accepted_by_depth, mean_tau

MOST = 31  # longest draft
SIZES, BATCHES = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32)
PUBLISHED, WARM = "published", "warm"  # recordings under the papers' settings, at temperature 0 and at 1


def badge(one: Machine) -> str:
    head = one.measurement.setup
    busy = " · " + t("badge.contended") if head.contended else ""
    threads = t("lab.threads", {"threads": head.threads})
    return t(f"badge.{one.origin}", {"device": f"{head.device} ({threads}, {head.dtype})", "date": head.date}) + busy


def model_badge(reason: str) -> str:
    return f"**{t('badge.model')}** · {reason}"


def where_time_goes(one: Machine, context: int, layers: int) -> None:
    st.subheader(t("split.title"), anchor=False)
    st.markdown(t("split.lead"))
    left, right = st.columns([3, 8], gap="medium")
    with left:
        length = kept_slider("parts", "lab.k", MOST, 15)
    chart = charts.split(one.measurement, context, layers, length)
    modelled = one.measurement.setup.modelled
    with right:
        charts.show(chart, "split")
        st.caption(model_badge(t("split.model")) if modelled else f"{badge(one)} · {t('split.between')}")
        charts.twin(chart, "split")


def head_lesson(one: Machine) -> None:
    st.subheader(t("heads.title"), anchor=False)
    own = sorted(timed.heads(one.measurement, "calls"))
    st.markdown(t("heads.lead", {"own": own[0], "full": own[-1]}) if own else "")
    chart = charts.heads(one.measurement)
    charts.show(chart, "heads")
    st.caption(badge(one))
    charts.twin(chart, "heads")


def recordings(method: str, preset: str) -> list[Trace]:
    """The recordings of a method on all prompts."""
    wanted = [r for r in recorded.recordings() if (r.method, r.preset) == (method, preset)]
    found = [recorded.recording(r.prompt, method, preset) for r in wanted]
    return [trace for trace in found if trace]


def drafting(preset: str) -> dict[str, list[Trace]]:
    """Recordings by method, of those that have a drafter."""
    known = [key for key, method in source.methods().items() if method.network]
    return {key: found for key in known if (found := recordings(key, preset))}


def kept_slider(key: str, label: str, most: int, default: int) -> int:
    """A slider from 1 whose value stands in the address."""
    restore(key, number(int, 1, most), default)
    st.slider(t(label), 1, most, key=key)
    return note(key, default, str)


def kept_steps(key: str, label: str, help: str, steps: Sequence[int]) -> int:
    """A slider over a few values, the first one where nobody chose."""
    restore(key, a_number_of(steps), steps[0])
    st.select_slider(t(label), steps, key=key, help=t(help))
    return note(key, steps[0], str)


def choose_acceptance(place: DeltaGenerator) -> float | None:
    """A rate for every depth, or None: as measured."""
    with place:
        restore("guess", yes, False)
        st.toggle(t("whatif.own"), key="guess", help=t("whatif.own.help"))
        own = note("guess", False, lambda on: "1" if on else "0")
        restore("rate", number(float, 0, 1), 0.7)
        st.slider(t("whatif.rate"), 0.0, 1.0, step=0.05, key="rate", disabled=not own)
        rate = note("rate", 0.7, lambda value: f"{value:.2f}")
    return rate if own else None


def yes(text: str) -> bool:
    return text == "1"


def what_if(one: Machine, context: int) -> None:
    """MODEL: sliders, the curve of speed over K, and the numbers at the chosen K."""
    st.subheader(t("whatif.title"), anchor=False)
    st.markdown(t("whatif.lead"))
    left, right = st.columns([3, 8], gap="medium")
    rate = choose_acceptance(left)
    with left:
        length = kept_slider("k", "lab.k", MOST, 4)
        layers = kept_slider("depth", "whatif.layers", 5, 5)
        size = kept_steps("size", "whatif.size", "whatif.size.help", SIZES)
        batch = kept_steps("batch", "whatif.batch", "whatif.batch.help", BATCHES)
    lines = [line for line in timed.lines(one.measurement) if line.form != "block" or line.layers == layers]
    given = (context, rate, size, batch)
    found = {line: outcomes(one.measurement, line, recordings(line.method, PUBLISHED), *given) for line in lines}
    found = {line: steps for line, steps in found.items() if steps}
    with right:
        chart = charts.speedups({line: [step.speedup for step in steps] for line, steps in found.items()}, length)
        charts.show(chart, "whatif")
        said = "whatif.model" if rate is None else "whatif.model.own"
        st.caption(model_badge(t(said, {"device": one.measurement.setup.device, "rate": rate or 0.0})))
        st.table([whatif_row(line, steps, length) for line, steps in found.items()])
        charts.twin(chart, "whatif")


@once(256)
def outcomes(
    timed: Measurement, line: Line, traces: list[Trace], context: int, rate: float | None, size: int, batch: int
) -> list[whatif.Outcome]:
    """One per draft length; none where nothing was measured. rate: of acceptance, else as `traces` have it."""
    acceptance = whatif.rates_of(line, traces) if rate is None else [rate]
    settings = (whatif.Settings(k, size, batch) for k in range(1, MOST + 1))
    found = [whatif.outcome(timed, line, context, acceptance, given) for given in settings]
    return [step for step in found if step]


def whatif_row(line: Line, steps: list[whatif.Outcome], length: int) -> dict[str, str]:
    """The formula's terms at the chosen K, and the K that would be fastest."""
    step = steps[length - 1]
    best = max(range(len(steps)), key=lambda i: steps[i].speedup)
    return {
        t("table.method"): charts.name(line),
        "τ": f"{step.tau:.2f}",
        "T_target": f"{step.plain:.1f}",
        "T_draft": f"{step.draft + step.head:.1f}",
        "T_verify": f"{step.verify:.1f}",
        "T_host": f"{step.host:.1f}",
        t("whatif.y"): f"{step.speedup:.2f}×",
        t("whatif.best"): f"K = {best + 1}: {steps[best].speedup:.2f}×",
    }


def sweep() -> None:
    """What `--sweep` timed on this device, and what became the preset."""
    st.subheader(t("sweep.title"), anchor=False)
    found = read()
    if not found.tried:
        st.info(t("sweep.none"))
        return
    st.markdown(t("sweep.lead"))
    chart = charts.swept(found.tried)
    charts.show(chart, "sweep")
    st.caption(t("badge.replay", {"device": found.device, "date": found.date}))
    charts.twin(chart, "sweep")


def acceptance() -> None:
    """How far ahead guesses hold, on which texts, at which temperature, and whether confidence tells."""
    found = drafting(PUBLISHED)
    if not found:
        return
    st.subheader(t("accept.title"), anchor=False)
    st.markdown(t("accept.lead"))
    chart = by_depth(found)
    charts.show(chart, "depth")
    first = next(iter(found.values()))[0].header
    where = t("badge.replay", {"device": first.device, "date": first.date})
    st.caption(where)
    charts.twin(chart, "depth")
    by_kind(found)
    by_temperature(found)
    confidence(found, where)


@once(16)
def by_depth(found: dict[str, list[Trace]]) -> charts.Chart:
    curves = [share_of(key, charts.counts(accepted_by_depth(traces))) for key, traces in found.items()]
    return charts.shares(t("chart.x"), [curve for curve in curves if curve.points], unit=False)


@once(16)
def by_confidence(found: dict[str, list[Trace]]) -> charts.Chart:
    bins = {key: whatif.calibration(traces) for key, traces in found.items()}
    curves = [share_of(key, [charts.Asked(b.mean, b.tested, b.accepted) for b in many]) for key, many in bins.items()]
    return charts.shares(t("sure.x"), curves, unit=True)


def share_of(key: str, points: list[charts.Asked]) -> charts.Shares:
    """A method's curve; its name says how many guesses stand behind it."""
    n = sum(p.asked for p in points)
    return charts.Shares(key, t("accept.n", {"name": t_or(f"method.{key}.title", key), "n": n}), points)


@once(256)
def cell(traces: list[Trace]) -> str:
    """As `summary`, of recordings: remembered, they stay in memory."""
    return summary(traces)


def summary(traces: list[Trace]) -> str:
    """τ over prompts, and the share of first guesses that held with their number."""
    counts = accepted_by_depth(traces)
    if not counts:
        return "–"
    first, mean = counts[0], mean_tau(traces)
    return t("kinds.cell", {"tau": mean, "share": first.accepted / first.tested, "n": first.tested})


def by_kind(found: dict[str, list[Trace]]) -> None:
    st.markdown(f"**{t('kinds.title')}**")
    st.markdown(t("kinds.about"))
    rows = []
    for prompt in recorded.prompts():
        own = {key: recorded.recording(prompt, key, PUBLISHED) for key in found}
        named = {t_or(f"method.{key}.title", key): cell([trace]) if trace else "–" for key, trace in own.items()}
        rows.append({t("kinds.text"): t_or(f"trace.{prompt}", prompt), **named})
    st.table(rows)


def by_temperature(found: dict[str, list[Trace]]) -> None:
    """Recorded at 0 and at 1, and whatever the reader ran at other temperatures."""
    every = [trace for traces in (*found.values(), *drafting(WARM).values()) for trace in traces]
    own = [trace for trace in desk().traces if trace.header.method.key in found and elsewhere(trace, every)]
    every += own
    st.markdown(f"**{t('warmth.title')}**")
    told = summary if own else cell
    warmths = sorted({trace.header.sampling.temperature for trace in every})
    rows = []
    for warmth in warmths:
        here = [trace for trace in every if trace.header.sampling.temperature == warmth]
        cells = {key: told([trace for trace in here if trace.header.method.key == key]) for key in found}
        named = {t_or(f"method.{key}.title", key): text for key, text in cells.items()}
        rows.append({t("temperature"): f"{warmth:g}", **named})
    st.table(rows)
    st.caption(t("warmth.about") if len(warmths) > 1 else t("warmth.none"))


def elsewhere(trace: Trace, recorded: Sequence[Trace]) -> bool:
    """A run of the recorded target at a temperature that was not recorded: a cell of its own, with whatever knobs."""
    warmths = {one.header.sampling.temperature for one in recorded}
    targets = {one.header.target.hash for one in recorded}
    return trace.header.sampling.temperature not in warmths and trace.header.target.hash in targets


def confidence(found: dict[str, list[Trace]], where: str) -> None:
    """EAGLE-2's premise: what the drafter is sure of is accepted."""
    st.subheader(t("sure.title"), anchor=False)
    st.markdown(t("sure.lead"))
    chart = by_confidence(found)
    charts.show(chart, "sure")
    st.caption(where)
    charts.twin(chart, "sure")
