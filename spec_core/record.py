"""`python -m spec_core.record`: the traces the app ships, every prompt with every method under both presets.

Beside them what only some pages ask for: runs with drawn tokens, and the variants a method's lessons show.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.load import Model, load_target
from spec_core import trace as traces
from spec_core.command import Parser, Ready, get_ready, guarded, say
from spec_core.methods import discover
from spec_core.presets import PRESETS, Preset, preset
from spec_core.prompts import PromptFileError, Question, load
from spec_core.report import tie
from spec_core.run import chat_prompt
from spec_core.trace import KnobValue, Prompt, Sampling, Trace, accepted, difference, save, tau, tokens_per_second

MOST_BYTES = 200_000
WARM_UP = 8
WARM, WARMTH = "warm", Sampling(temperature=1.0)  # the published preset with drawn tokens
DRAWN = "sampled"  # at that temperature too, but with chains really drawn from q, which meet `reject`
OPENING = "opening.txt"  # names the recording the app opens with, so that it need not read them all to choose
OPENING_STEPS = 4
SHORT: dict[Preset, str] = {"published": "published", "this device": "device"}  # as file names call them


@dataclass(frozen=True)
class Recorder:
    model: Model
    ready: list[Ready]
    folder: Path
    tokens: int

    def knobs(self, one: Ready, name: Preset) -> dict[str, KnobValue]:
        """The preset, with whatever makes a recording richer at no cost that counts."""
        return {
            **(one.published if name == "published" else preset(one.method, name, kind=self.model.device.type)),
            **one.method.recorded,
        }

    def warm_up(self, prompt: Prompt) -> None:
        for one in self.ready:
            for name in PRESETS:
                one.decode(self.model, prompt, self.knobs(one, name), Sampling(), WARM_UP)

    def record(self, question: Question) -> Iterator[str]:
        """Write the traces of one prompt; yields what is wrong with them."""
        prompt = chat_prompt(self.model, question.text)
        plain: Trace | None = None
        for one in self.ready:
            for name in PRESETS:
                trace = one.decode(self.model, prompt, self.knobs(one, name), Sampling(), self.tokens)
                plain = plain or trace
                yield from self.compare(trace, plain, f"{question.key}.{one.method.key}")
                yield from self.write(trace, f"{question.key}.{one.method.key}.{SHORT[name]}.jsonl.gz")

    def record_warm(self, question: Question) -> Iterator[str]:
        """The drafters' runs once more with drawn tokens, for what acceptance owes to temperature."""
        prompt = chat_prompt(self.model, question.text)
        for one in (one for one in self.ready if one.method.network):
            trace = one.decode(self.model, prompt, one.published, WARMTH, self.tokens)
            yield from self.write(trace, f"{question.key}.{one.method.key}.{WARM}.jsonl.gz")

    def record_drawn(self, question: Question) -> Iterator[str]:
        """The same with guesses drawn from q, of the methods that know how."""
        prompt = chat_prompt(self.model, question.text)
        for one in (one for one in self.ready if one.method.drawn):
            trace = one.decode(self.model, prompt, one.method.drawn, WARMTH, self.tokens)
            yield from self.write(trace, f"{question.key}.{one.method.key}.{DRAWN}.jsonl.gz")

    def record_variants(self, question: Question) -> Iterator[str]:
        """The runs on this prompt which the methods' lessons need beside the published ones."""
        prompt = chat_prompt(self.model, question.text)
        wanted = [(one, name, v) for one in self.ready for name, v in one.method.lessons.items()]
        here = [(one, name, variant) for one, name, variant in wanted if variant.prompt == question.key]
        plain = self.ready[0].decode(self.model, prompt, {}, Sampling(), self.tokens) if here else None
        for one, name, variant in here:
            knobs = {**self.knobs(one, "published"), **variant.knobs}
            trace = one.decode(self.model, prompt, knobs, Sampling(), self.tokens)
            yield from self.compare(trace, plain or trace, f"{question.key}.{one.method.key}.{name}")
            yield from self.write(trace, f"{question.key}.{one.method.key}.{name}.jsonl.gz")

    def compare(self, trace: Trace, plain: Trace, name: str) -> Iterator[str]:
        """What is wrong where a greedy run says something else than plain decoding, and it was no near-tie."""
        away = difference(trace, plain)
        if away and away.gap > tie(trace.header.dtype):
            yield f"{name}: not plain decoding's text from token {away.position} on"

    def write(self, trace: Trace, name: str) -> Iterator[str]:
        """A file replaces its elder only when it is whole and small enough."""
        draft = self.folder / f"new.{name}"
        save(trace, draft)
        size = draft.stat().st_size
        say(f"{name}: {size / 1000:.0f} kB, tau {tau(trace):.2f}, {tokens_per_second(trace):.1f} tokens/s")
        if size > MOST_BYTES:
            draft.unlink()
            yield f"{name}: {size} bytes, and at most {MOST_BYTES} are allowed: not written"
        else:
            draft.replace(self.folder / name)


def liveliest(folder: Path) -> str:
    """Of the recordings whose drafts grow pass by pass, so that there is something to watch, the name of the one with
    most accepted guesses in its first steps; else ""."""
    found = {
        path.name.removesuffix(".jsonl.gz"): traces.load(path) for path in sorted(folder.glob("*.device.jsonl.gz"))
    }
    first = {name: trace.steps[1 : OPENING_STEPS + 1] for name, trace in found.items()}
    grown = {name: steps for name, steps in first.items() if all(max(step.draft.passes) > 0 for step in steps)}
    full = {name: sum(map(accepted, steps)) for name, steps in grown.items() if len(steps) == OPENING_STEPS}
    return max(full, key=lambda name: (full[name], name), default="")


def select(questions: Sequence[Question], only: str) -> list[Question]:
    """Those named, or all of them."""
    wanted = [key.strip() for key in only.split(",") if key.strip()]
    known = {question.key: question for question in questions}
    for key in wanted:
        if key not in known:
            raise PromptFileError(f"there is no prompt {key!r}: choose among {', '.join(known)}")
    return [known[key] for key in wanted] or list(questions)


def kinds(recorder: Recorder, args: Namespace) -> list[Callable[[Question], Iterator[str]]]:
    """What is to be recorded of every prompt: all kinds, unless some are asked for."""
    extra = [
        (recorder.record_warm, args.warm),
        (recorder.record_drawn, args.warm),
        (recorder.record_variants, args.variants),
    ]
    return [kind for kind, asked in extra if asked] or [recorder.record, *(kind for kind, _ in extra)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m spec_core.record", description="Record the traces the app ships.")
    parser.add_argument("--prompts", type=Path, default=Path("assets/prompts/traces.jsonl"), metavar="FILE.jsonl")
    parser.add_argument("--only", default="", metavar="KEYS", help="prompts to record, with commas; else all")
    parser.add_argument("--warm", action="store_true", help="only the runs with drawn tokens")
    parser.add_argument("--variants", action="store_true", help="only the runs made for lessons")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("assets/traces"), metavar="FOLDER")
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(argv)
    questions = select(load(args.prompts), args.only)
    model = load_target(args.target, args.device)
    ready, missing = get_ready(model, list(discover().values()))
    args.out.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(model, ready, args.out, args.tokens)
    recorder.warm_up(chat_prompt(model, questions[0].text))
    wrong = [problem for record in kinds(recorder, args) for one in questions for problem in record(one)]
    (args.out / OPENING).write_text(liveliest(args.out) + "\n", encoding="utf-8")
    wrong += [f"{key} not recorded: {reason}" for key, reason in missing.items()]
    for problem in wrong:
        say(problem)
    return 1 if wrong else 0


def command(argv: Sequence[str] | None = None) -> int:
    return guarded(lambda: main(argv))


if __name__ == "__main__":
    raise SystemExit(command())
