"""Which knobs are fastest here: every setting a method lists as worth timing, on a few prompts and short outputs."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from models.load import Model
from spec_core.command import Ready, say
from spec_core.contract import Knobs, Method
from spec_core.methods import yardstick
from spec_core.presets import FILE, Measured, Tried, write
from spec_core.prompts import Question, sample
from spec_core.run import chat_prompt
from spec_core.trace import Prompt, Sampling, Trace, mean_tau, tau, tidy, tokens_per_second

PROMPTS, TOKENS, WARM_UP = 10, 32, 4  # two prompts of each of the five sets


@dataclass
class Turns:
    """Traces of one method: of every setting, and of plain decoding just before them, one per prompt."""

    runs: list[list[Trace]]
    plain: list[Trace] = field(default_factory=list[Trace])


def in_turns(model: Model, ready: Sequence[Ready], prompts: Sequence[Prompt]) -> dict[str, Turns]:
    """Every setting of every method on one prompt, then on the next: a slow minute of the machine hits all alike."""
    base, greedy = Ready(yardstick(), None), Sampling()
    found = {one.method.key: Turns([[] for _ in one.method.sweep]) for one in ready}
    for one in ready:
        for knobs in one.method.sweep:
            one.decode(model, prompts[0], knobs, greedy, WARM_UP)
    for number, prompt in enumerate(prompts, 1):
        say(f"prompt {number} of {len(prompts)} …")
        for one in ready:
            mine = found[one.method.key]
            mine.plain.append(base.decode(model, prompt, {}, greedy, TOKENS))
            for traces, knobs in zip(mine.runs, one.method.sweep, strict=True):
                traces.append(one.decode(model, prompt, knobs, greedy, TOKENS))
    return found


def steady(trace: Trace) -> float:
    """Tokens per second had every step taken what the middle one took: a neighbour's burst is not the setting's."""
    times = [step.ms for step in trace.steps[1:]]
    return 1000 * tau(trace) / median(times) if times else 0.0


def speedup(traces: Sequence[Trace], plain: Sequence[Trace]) -> float:
    """Median over prompts of the ratio of those speeds."""
    return median([a / b for a, b in zip(map(steady, traces), map(steady, plain), strict=True) if a and b] or [0.0])


def named(knobs: Knobs) -> str:
    return " ".join(f"{name}={value}" for name, value in knobs.items())


def candidates(method: Method, turns: Turns) -> list[Tried]:
    """Every setting of one method as it was measured."""
    return [
        Tried(
            method.key,
            dict(knobs),
            max(len(step.draft.kept) for trace in traces for step in trace.steps) - 1,
            tidy(mean_tau(traces)),
            tidy(median(map(tokens_per_second, traces))),
            tidy(speedup(traces, turns.plain)),
        )
        for knobs, traces in zip(method.sweep, turns.runs, strict=True)
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
    some = [one for one in ready if one.method.sweep]
    found = {
        one.method.key: candidates(one.method, turns)
        for one, turns in zip(some, in_turns(model, some, prompts).values(), strict=True)
    }
    best = {key: dict(fastest(tried).knobs) for key, tried in found.items()}
    today, tried = datetime.date.today().isoformat(), sum(found.values(), [])
    write(Measured(model.device_name, today, best, tried, model.device.type, model.id), path)
    return "\n".join([*(line for tried in found.values() for line in table(tried)), f"written to {path.name}"])
