"""`python -m spec_core.bench`: how well and how fast every method decodes the same prompts on this device.

Per prompt all methods run one after another, plain decoding first, so that whatever else the machine does hits all of
them. tau: mean over prompts of a prompt's own mean. tokens_per_second: median over prompts. speedup: median over
prompts of a method's tokens per second over plain decoding's on that prompt. Recording is in no speed.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median

import msgspec
import torch

from models.load import Model, load_target
from spec_core.command import Parser, Ready, at_least_one, choose, get_ready, guarded, knobs_by_method, say
from spec_core.contract import Knobs
from spec_core.methods import yardstick
from spec_core.presets import PRESETS, Preset, preset
from spec_core.prompts import Question, load, sample
from spec_core.report import Departure, Figures, Ratio, Report, loops, speedup, table, tie
from spec_core.run import chat_prompt
from spec_core.trace import (
    Prompt,
    Sampling,
    Trace,
    accepted_by_depth,
    difference,
    exact,
    ids,
    mean_tau,
    time_split,
    tokens_per_second,
)

WARM_UP = 8  # tokens


@dataclass
class Bench:
    """What is measured, and the traces so far: by method and preset, one per prompt, in the prompts' order."""

    model: Model
    ready: list[Ready]
    knobs: Mapping[tuple[str, Preset], Knobs]
    questions: list[Question]
    sampling: Sampling
    tokens: int
    traces: dict[tuple[str, Preset], list[Trace]] = field(default_factory=dict)

    def decode(self, one: Ready, name: Preset, prompt: Prompt, tokens: int) -> Trace:
        return one.decode(self.model, prompt, self.knobs[one.method.key, name], self.sampling, tokens)

    def warm_up(self) -> None:
        prompt = chat_prompt(self.model, self.questions[0].text)
        for one in self.ready:
            for name in PRESETS:
                self.decode(one, name, prompt, WARM_UP)

    def run(self) -> None:
        """Every method on every prompt: the speeds close together first, then the published presets."""
        self.warm_up()
        for number, question in enumerate(self.questions, 1):
            prompt = chat_prompt(self.model, question.text)
            for name in reversed(PRESETS):
                for one in self.ready:
                    self.traces.setdefault((one.method.key, name), []).append(self.measure(one, name, prompt))
            say(f"[{number}/{len(self.questions)}] {question.name}: {self.speeds()}")

    def measure(self, one: Ready, name: Preset, prompt: Prompt) -> Trace:
        """One run; where the two presets are the same setting the run just made serves for both."""
        key = one.method.key
        if name == "published" and self.knobs[key, name] == self.knobs[key, "this device"]:
            return self.traces[key, "this device"][-1]
        return self.decode(one, name, prompt, self.tokens)

    def speeds(self) -> str:
        """Tokens per second on the newest prompt, for the progress line."""
        parts = (
            (key, tokens_per_second(traces[-1])) for (key, name), traces in self.traces.items() if name != "published"
        )
        return ", ".join(f"{key} {speed:.1f}" for key, speed in parts) + " tokens/s"

    def plain(self) -> list[Trace]:
        return self.traces[yardstick().key, "this device"]


def departures(bench: Bench) -> list[Departure]:
    """Every greedy text that is not plain decoding's own, under either preset."""
    found: list[Departure] = []
    for (key, name), traces in bench.traces.items():
        for question, trace, plain in zip(bench.questions, traces, bench.plain(), strict=True):
            if away := difference(trace, plain):
                found.append(Departure(key, name, question.name, away.position, away.gap))
    return found


def tau_by_set(questions: Sequence[Question], traces: Sequence[Trace]) -> dict[str, float]:
    pairs = list(zip(questions, traces, strict=True))
    return {name: mean_tau(t for q, t in pairs if q.set == name) for name in dict.fromkeys(q.set for q in questions)}


def figures(bench: Bench, key: str, real: Sequence[Departure]) -> Figures:
    traces, published = bench.traces[key, "this device"], bench.traces[key, "published"]
    wrong = sum(1 for one in real if one.method == key and one.preset == "this device")
    return Figures(
        tau=mean_tau(traces),
        tau_published=mean_tau(published),
        tau_published_by_set=tau_by_set(bench.questions, published),
        tokens_per_second=median([speed for trace in traces if (speed := tokens_per_second(trace))] or [0.0]),
        speedup=speedup(traces, bench.plain()),
        identical=None if bench.sampling.temperature else len(traces) - wrong,
        prompts=len(traces),
        accepted_by_depth=accepted_by_depth(traces),
        time_split=time_split(traces),
    )


def report(bench: Bench, ratios: dict[str, Ratio], skipped: dict[str, str]) -> Report:
    away = [] if bench.sampling.temperature else departures(bench)
    allowed = tie(bench.model.number_type)
    real = [one for one in away if one.gap > allowed]
    pairs = zip(bench.questions, bench.plain(), strict=True)
    looping = [question.name for question, trace in pairs if loops(ids(trace))]
    keys = [one.method.key for one in bench.ready]
    return Report(
        date=datetime.date.today().isoformat(),
        device=bench.model.device_name,
        threads=torch.get_num_threads(),
        dtype=bench.model.number_type,
        target=bench.model.id,
        tokens=bench.tokens,
        temperature=bench.sampling.temperature,
        methods={key: figures(bench, key, real) for key in keys},
        ratios=ratios,
        presets={key: bench.knobs[key, "this device"] for key in keys},
        near_ties=[one for one in away if one.gap <= allowed],
        differences=real,
        looping=len(looping),
        looping_prompts=looping,
        skipped=skipped,
    )


def settings(
    ready: Sequence[Ready], given: Mapping[str, Knobs], base: Preset, kind: str
) -> dict[tuple[str, Preset], Knobs]:
    """Knobs by method and preset; what the command line names goes over `base`, which stands for *this device*."""
    found: dict[tuple[str, Preset], Knobs] = {}
    for one in ready:
        method = one.method
        found[method.key, "published"] = one.published
        start = one.published if base == "published" else preset(method, base, kind=kind)
        found[method.key, "this device"] = method.settle({**start, **given.get(method.key, {})})
    return found


def arguments() -> Parser:
    parser = Parser(prog="python -m spec_core.bench", description="Compare the methods on a file of prompts.")
    default = [Path("assets/prompts/bench.jsonl")]
    parser.add_argument("--prompts", type=Path, default=default, nargs="+", metavar="FILE.jsonl")
    parser.add_argument(
        "--limit", type=at_least_one, default=20, help="prompts at most, an equal number of each set (20)"
    )
    parser.add_argument("--tokens", type=int, default=96, help="most new tokens per prompt (96)")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", default="all", help="all, or names with commas; plain decoding always runs")
    parser.add_argument(
        "--published", action="store_true", help="only the published knobs: half the work, for acceptance alone"
    )
    parser.add_argument("--knob", action="append", default=[], metavar="METHOD.NAME=VALUE")
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--ratios", action="store_true", help="also time the target against transformers' own")
    parser.add_argument(
        "--sweep", action="store_true", help="first find and save the fastest knobs; alone without --json"
    )
    parser.add_argument("--json", type=Path, metavar="OUT")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments().parse_args(argv)
    questions = sample(list(chain.from_iterable(map(load, args.prompts))), args.limit)
    given: Mapping[str, Knobs] = knobs_by_method(args.knob)
    base = yardstick()
    methods = [base, *(method for method in choose(args.methods) if method.key != base.key)]
    model = load_target(args.target, args.device)
    ready, skipped = get_ready(model, methods)
    for key, reason in skipped.items():
        say(f"skipped {key}: {reason}")
    if args.sweep:
        from spec_core.sweep import sweep

        print(sweep(model, ready, questions))
    if args.sweep and not args.json:
        return 0
    sampling = Sampling(args.temperature, seed=args.seed)
    knobs = settings(ready, given, "published" if args.published else "this device", model.device.type)
    bench = Bench(model, ready, knobs, questions, sampling, args.tokens)
    return finish(bench, args.target if args.ratios else None, skipped, args.json)


def finish(bench: Bench, reference: str | None, skipped: dict[str, str], out: Path | None) -> int:
    """Run it, print it, write it; status 1 where an fp32 greedy text is not plain decoding's."""
    ratios: dict[str, Ratio] = {}
    if reference:
        from spec_core.ratios import measure

        ratios = measure(bench.model, reference, [q.text for q in bench.questions])
    bench.run()
    found = report(bench, ratios, skipped)
    print(table(found))
    if out:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    return 1 if found.differences and exact(found.dtype) else 0


def command(argv: Sequence[str] | None = None) -> int:
    return guarded(lambda: main(argv))


if __name__ == "__main__":
    raise SystemExit(command())
