"""Which knobs are fastest here: every setting a method lists as worth timing, on a few prompts and short outputs."""

import datetime
from collections.abc import Sequence
from pathlib import Path

from models.load import Model
from spec_core.command import Ready, say
from spec_core.contract import Knobs
from spec_core.methods import yardstick
from spec_core.presets import FILE, write
from spec_core.prompts import Question, sample
from spec_core.report import speedup
from spec_core.run import chat_prompt
from spec_core.trace import KnobValue, Prompt, Sampling, Trace, tau

PROMPTS, TOKENS, WARM_UP = 3, 32, 4


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


def candidates(model: Model, one: Ready, prompts: Sequence[Prompt]) -> tuple[list[str], Knobs]:
    """Lines of the table, and the fastest setting."""
    say(f"timing {len(one.method.sweep)} settings of {one.method.title} …")
    runs, plain = candidate_runs(model, one, prompts)
    speeds = [speedup(traces, plain) for traces in runs]
    best = speeds.index(max(speeds))
    lines = []
    for i, (knobs, traces) in enumerate(zip(one.method.sweep, runs, strict=True)):
        mean = sum(map(tau, traces)) / len(traces)
        mark = "   <- fastest" if i == best else ""
        lines.append(f"{one.method.key:10} {named(knobs):36} tau {mean:5.2f}   speed {speeds[i]:5.2f}x{mark}")
    return lines, one.method.sweep[best]


def sweep(model: Model, ready: Sequence[Ready], questions: Sequence[Question], path: Path = FILE) -> str:
    """Time every candidate of every method, write the fastest ones to the presets' file, and return the table."""
    prompts = [chat_prompt(model, question.text) for question in sample(questions, PROMPTS)]
    lines: list[str] = []
    found: dict[str, dict[str, KnobValue]] = {}
    for one in (one for one in ready if one.method.sweep):
        more, best = candidates(model, one, prompts)
        lines += more
        found[one.method.key] = dict(best)
    write(model.device_name, datetime.date.today().isoformat(), found, path)
    return "\n".join([*lines, f"written to {path.name}"])
