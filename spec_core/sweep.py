"""Which knobs are fastest here: every setting a method lists as worth timing, on a few prompts and short outputs."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from models.load import Model
from spec_core.command import Ready, say
from spec_core.contract import Knobs
from spec_core.methods import yardstick
from spec_core.presets import FILE, Measured, Tried, write
from spec_core.prompts import Question, sample
from spec_core.report import speedup
from spec_core.run import chat_prompt
from spec_core.trace import Prompt, Sampling, Trace, mean_tau, tidy, tokens_per_second

PROMPTS, TOKENS, WARM_UP = 5, 32, 4  # a prompt of each of the five sets


def candidate_runs(model: Model, one: Ready, prompts: Sequence[Prompt]) -> tuple[list[list[Trace]], list[Trace]]:
    """Traces per candidate, one per prompt, and plain decoding's of the same prompts, run in turns with them."""
    base, greedy = Ready(yardstick(), None), Sampling()
    for knobs in one.method.sweep:
        one.decode(model, prompts[0], knobs, greedy, WARM_UP)
    runs: list[list[Trace]] = [[] for _ in one.method.sweep]
    plain: list[Trace] = []
    for prompt in prompts:
        plain.append(base.decode(model, prompt, {}, greedy, TOKENS))
        for traces, knobs in zip(runs, one.method.sweep, strict=True):
            traces.append(one.decode(model, prompt, knobs, greedy, TOKENS))
    return runs, plain


def named(knobs: Knobs) -> str:
    return " ".join(f"{name}={value}" for name, value in knobs.items())


def candidates(model: Model, one: Ready, prompts: Sequence[Prompt]) -> list[Tried]:
    """Every setting of one method as it was measured."""
    say(f"timing {len(one.method.sweep)} settings of {one.method.title} …")
    runs, plain = candidate_runs(model, one, prompts)
    return [
        Tried(
            one.method.key,
            dict(knobs),
            max(len(step.draft.kept) for trace in traces for step in trace.steps) - 1,
            tidy(mean_tau(traces)),
            tidy(median(map(tokens_per_second, traces))),
            tidy(speedup(traces, plain)),
        )
        for knobs, traces in zip(one.method.sweep, runs, strict=True)
    ]


def fastest(tried: Sequence[Tried]) -> Tried:
    """The first of those with the highest measured speed."""
    return max(tried, key=lambda one: one.speedup)


def table(tried: Sequence[Tried]) -> list[str]:
    best = fastest(tried)
    return [
        f"{one.method:10} {named(one.knobs):36} tau {one.tau:5.2f}   speed {one.speedup:5.2f}x"
        + ("   <- fastest" if one is best else "")
        for one in tried
    ]


def sweep(model: Model, ready: Sequence[Ready], questions: Sequence[Question], path: Path = FILE) -> str:
    """Time every candidate of every method, write the fastest ones to the presets' file, and return the table."""
    prompts = [chat_prompt(model, question.text) for question in sample(questions, PROMPTS)]
    lines: list[str] = []
    found: dict[str, list[Tried]] = {}
    for one in (one for one in ready if one.method.sweep):
        found[one.method.key] = candidates(model, one, prompts)
        lines += table(found[one.method.key])
    best = {key: dict(fastest(tried).knobs) for key, tried in found.items()}
    today, tried = datetime.date.today().isoformat(), sum(found.values(), [])
    write(Measured(model.device_name, today, best, tried, model.device.type, model.id), path)
    return "\n".join([*lines, f"written to {path.name}"])
