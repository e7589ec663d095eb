"""The numbers a sentence may name at a step of a lesson: read off the recording, never typed into a text."""

from collections.abc import Mapping, Sequence

from pages.pictures.flow import favourites
from pages.pictures.scene import Value
from pages.pictures.step import spell
from spec_core.trace import Step, Trace, accepted, depths, words


def of_step(runs: Sequence[Trace], number: int) -> Mapping[str, Value]:
    """Sizes of the networks, and what this step drafted, asked and got."""
    run = runs[0]
    step = run.steps[number]
    return {**sizes(run), **counts(step), **named(run, step)}


def sizes(run: Trace) -> dict[str, Value]:
    target, drafter = run.header.target, run.header.drafter or run.header.target
    return {
        "hidden": target.hidden,
        "double": 2 * target.hidden,
        "fused": len(drafter.taps) * target.hidden,
        "taps": ", ".join(map(str, drafter.taps)),
        "layers": target.layers,
        "depth": drafter.layers,
        "vocab": target.vocab,
        "words": drafter.vocab,
    }


def counts(step: Step) -> dict[str, Value]:
    """Passes, tokens and milliseconds of one step."""
    tree, kinds = step.draft, [one.kind for one in step.passes]
    drafting = sum(one.ms for one in step.passes if one.kind in ("draft", "head"))
    return {
        "passes": kinds.count("draft"),
        "heads": kinds.count("head"),
        "nodes": len(tree.kept) - 1,
        "rows": len(tree.kept),
        "levels": max(depths(tree)),
        "considered": len(tree.tokens) - 1 + sum(lost.more + len(lost.tokens) for lost in tree.others),
        "held": accepted(step),
        "count": len(step.committed),
        "unused": len(tree.kept) - 1 - accepted(step),
        "draft_ms": f"{drafting:.0f}",
        "step_ms": f"{step.ms:.0f}",
    }


def named(run: Trace, step: Step) -> dict[str, Value]:
    """The tokens in question: root, the drafter's favourite after it, bonus."""
    known, tree = words(run), step.draft
    best = [tree.tokens[i] for i in favourites(tree, 2)]
    shown = [spell(known.get(token, f"<{token}>")) for token in (tree.tokens[0], *best, step.verdict.bonus)]
    return {"root": shown[0], "guess": shown[1 if best else 0], "bonus": shown[-1]}
