"""`python -m spec_core.decode`: one prompt decoded in the terminal, every token marked by where it came from."""

import codecs
import gzip
import signal
import sys
import unicodedata
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from io import BufferedIOBase
from os import environ
from pathlib import Path
from typing import TextIO

from models.load import Model, Network, load_network, load_target
from spec_core.command import Parser, guarded, knob
from spec_core.contract import Method
from spec_core.methods import find
from spec_core.run import Part, Request, as_trained, chat_prompt, network_for, raw_prompt, run
from spec_core.trace import (
    End,
    Header,
    Sampling,
    Step,
    Trace,
    Word,
    accepted,
    encode,
    tau,
    time_split,
    tokens_per_second,
)

Mark = tuple[str, str]
COLOURS: tuple[Mark, Mark] = ("\x1b[32m", "\x1b[0m"), ("\x1b[1m", "\x1b[0m")
BRACKETS: tuple[Mark, Mark] = ("[", "]"), ("{", "}")


def clean(text: str) -> str:
    """Control characters by name: a model's text must not steer the terminal."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else f"\\x{ord(c):02x}" for c in text)


class Writer:
    """Prints a run as it grows. A character spread over several tokens is held back until it is whole."""

    def __init__(self, out: TextIO, colour: bool):
        self.out = out
        self.drafted, self.bonus = COLOURS if colour else BRACKETS
        self.known: dict[int, Word] = {}
        self.silent: set[int] = set()
        self.utf8 = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def show(self, part: Part) -> None:
        if isinstance(part, Header):
            self.known |= part.words
            self.silent = set(part.stops)
            print(
                f"{part.method.title}: {self.drafted[0]}drafted and accepted{self.drafted[1]}", end=", ", file=self.out
            )
            print(f"{self.bonus[0]}added by {part.target.id} itself{self.bonus[1]}\n", file=self.out, flush=True)
        elif isinstance(part, Step):
            self.known |= part.words
            held = accepted(part)
            self.write(part.committed[:held], self.drafted)
            self.write(part.committed[held:], self.bonus)
        else:
            print(clean(self.utf8.decode(b"", final=True)), file=self.out)

    def write(self, tokens: Sequence[int], mark: Mark) -> None:
        words = [self.known.get(token, f"<{token}>") for token in tokens if token not in self.silent]
        raw = b"".join(word.encode() if isinstance(word, str) else bytes(word) for word in words)
        if text := clean(self.utf8.decode(raw)):
            self.out.write(f"{mark[0]}{text}{mark[1]}")
            self.out.flush()


def summary(trace: Trace) -> str:
    """What the run came to, in four lines."""
    end, split = trace.end, time_split([trace])
    assert end is not None
    whole = sum(split.values()) or 1.0
    shares = ", ".join(f"{kind} {100 * ms / whole:.0f}%" for kind, ms in split.items())
    return (
        f"\nended: {end.reason} after {end.tokens} tokens in {end.steps} steps (the first is the prompt's)\n"
        f"tau: {tau(trace):.2f} tokens per step, the target's own included\n"
        f"speed: {tokens_per_second(trace):.1f} tokens/s on {trace.header.device}, {trace.header.dtype}\n"
        f"time: {shares or 'no step was drafted'}"
    )


@contextmanager
def calling_off() -> Generator[list[bool]]:
    """Ctrl-C fills the yielded list: the step under way is finished and written. A second one interrupts at once."""
    asked: list[bool] = []

    def handle(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(True)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def trace_file(path: Path) -> BufferedIOBase:
    return gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb")


def follow(parts: Iterable[Part], writer: Writer, out: BufferedIOBase | None) -> Trace:
    """Show every part as it comes and put its line into the trace file, where another program may read along."""
    trace: Trace | None = None
    for part in parts:
        if out:
            out.write(encode(part))
            out.flush()
        writer.show(part)
        if isinstance(part, Header):
            trace = Trace(part, [])
        elif trace and isinstance(part, Step):
            trace.steps.append(part)
        elif trace and isinstance(part, End):
            trace.end = part
    assert trace is not None
    return trace


def arguments() -> Parser:
    parser = Parser(
        prog="python -m spec_core.decode", description="Decode one prompt and show where each token came from."
    )
    parser.add_argument("--method", required=True, help="how to draft; a wrong name lists the methods")
    parser.add_argument("--prompt", required=True, help="the text, or - to read it from standard input")
    parser.add_argument("--knob", action="append", default=[], metavar="NAME=VALUE", help="may be given several times")
    parser.add_argument(
        "--trace", type=Path, metavar="OUT", help="also write the run to this file (.jsonl or .jsonl.gz)"
    )
    parser.add_argument("--tokens", type=int, default=128, help="most new tokens (128)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="smollm2-135m", help="a known pair, a folder, or a Hugging Face id")
    parser.add_argument("--drafter", help="a folder or Hugging Face id with the drafter's weights")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--raw", action="store_true", help="continue the text as it stands, without the chat template")
    return parser


def network_of(model: Model, method: Method, drafter: str | None) -> Network | None:
    return load_network(model, drafter) if drafter else network_for(model, method)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments().parse_args(argv)
    method = find(args.method)
    given = dict(map(knob, args.knob))
    method.settle(given)  # what is wrong is said before anything is loaded
    text = sys.stdin.read() if args.prompt == "-" else args.prompt
    model = load_target(args.target, args.device)
    prompt = (raw_prompt if args.raw else chat_prompt)(model, text)
    sampling = Sampling(args.temperature, args.top_p, args.seed)
    network = network_of(model, method, args.drafter)
    request = Request(method, prompt, as_trained(method, network) | given, sampling, args.tokens)
    writer = Writer(sys.stdout, sys.stdout.isatty() and "NO_COLOR" not in environ)
    with calling_off() as asked:
        parts = run(model, network, request, lambda: bool(asked))
        with trace_file(args.trace) if args.trace else nullcontext() as out:
            trace = follow(parts, writer, out)
    print(summary(trace))
    return 0


def command(argv: Sequence[str] | None = None) -> int:
    return guarded(lambda: main(argv))
