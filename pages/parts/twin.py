"""The step a picture rests at, as a table: for readers of tables, screen readers and spreadsheets."""

from collections.abc import Mapping, Sequence

import streamlit as st

from pages.parts.text import t
from pages.pictures.scene import Frame
from pages.pictures.step import spell
from spec_core.trace import Step, Trace, depths, words

Cell = str | float | None
Row = Mapping[str, Cell]


def fate(step: Step, node: int) -> str:
    """What became of a node, as a word."""
    if node == 0:
        return t("fate.root")
    if node in step.verdict.path:
        return t("fate.accepted")
    if node not in step.draft.kept:
        return t("fate.pruned")
    return t("fate.rejected" if step.draft.parents[node] == step.verdict.path[-1] else "fate.left")


def rows(trace: Trace, step: Step) -> list[Row]:
    """One row a node of the draft, the root first."""
    known, p = words(trace), dict(zip(step.draft.kept, step.verdict.p, strict=True))
    levels = depths(step.draft)
    return [
        {
            t("stepping.token"): spell(known.get(token, f"<{token}>")),
            t("stepping.depth"): levels[i],
            t("stepping.pass"): step.draft.passes[i] + 1,
            t("stepping.q"): step.draft.probs[i],
            t("stepping.p"): p.get(i),
            t("stepping.fate"): fate(step, i),
        }
        for i, token in enumerate(step.draft.tokens)
    ]


def table(trace: Trace, step: Step) -> None:
    with st.expander(t("stepping.table"), key="twin"):
        st.dataframe(rows(trace, step), hide_index=True, width="stretch")


def step_at(runs: Sequence[Trace], frame: Frame) -> tuple[Trace, Step]:
    """The run and the step of a frame."""
    run = runs[frame.run]
    return run, run.steps[min(frame.at, len(run.steps) - 1)]
