"""The target writes its own training data: it asks a question, then answers it, many dialogues at a time.

`python -m spec_core.training.corpus` appends to a JSON Lines file in the cache folder and can be stopped at any moment.
"""

import argparse
import gzip
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import IO

import torch

from models.fetch import cache_dir
from models.load import Model, load_target
from models.tokenizer import Tokenizer
from spec_core.trace import Sampling
from spec_core.training.generate import Text, write

ASK = Sampling(temperature=0.9, top_p=0.95)
GREEDY = Sampling()
WARM = Sampling(temperature=0.7, top_p=0.95)
GREEDY_SHARE = 0.7
QUESTION, ANSWER = 100, 256  # most tokens of a turn
SHORTEST = 3  # a question of fewer tokens is none
WINDOW = 8  # batches of given questions that are sorted by length together
MARK = "QUESTION"  # stands where the question goes while the chat template is taken apart
LOOP = 0.5  # an answer with fewer distinct trigrams than this share goes round in circles
LOOPS = 0.1  # at most this share of the corpus may do so …
CUT = 0.6  # … and at most this share may end for lack of room


def training_dir() -> Path:
    """Where corpus, features and checkpoints live: outside the checkout, and only ever a cache."""
    return cache_dir() / "training"


def corpus_file() -> Path:
    return training_dir() / "corpus.jsonl"


@dataclass(frozen=True)
class Dialogue:
    """One question and answer as ids of the whole chat, default system turn included.

    source: `self` where the question too was sampled from the target. ended: the answer reached its stop token.
    """

    ids: list[int]
    prompt_length: int
    temperature: float
    source: str
    ended: bool

    @property
    def question(self) -> list[int]:
        return self.ids[: self.prompt_length]

    @property
    def answer(self) -> list[int]:
        return self.ids[self.prompt_length :]

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def loops(dialogue: Dialogue) -> bool:
    a = dialogue.answer
    return len(set(zip(a, a[1:], a[2:], strict=False))) < LOOP * (len(a) - 2)


@dataclass
class Quota:
    """Keeps loops and cut-off answers to their shares: nearly free to guess, they would drown the rest."""

    kept: int = 0
    looping: int = 0
    cut: int = 0

    def admits(self, dialogue: Dialogue) -> bool:
        """Whether the corpus may still take this one."""
        room = self.kept + 10  # the first few must not be judged by their own share
        full = loops(dialogue) and self.looping >= LOOPS * room
        return len(dialogue.answer) > 1 and not full and (dialogue.ended or self.cut < CUT * room)

    def count(self, dialogue: Dialogue) -> None:
        self.kept += 1
        self.looping += loops(dialogue)
        self.cut += not dialogue.ended


def open_text(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def read(path: Path) -> Iterator[Dialogue]:
    """The dialogues of a file, gzipped or not; a last line torn by a kill is left out."""
    with open_text(path) as file:
        for line in file:
            if line.endswith("\n"):
                yield Dialogue(**json.loads(line))


def mend(path: Path) -> None:
    """Cut off a last line that a kill has torn, so that the next one does not run into it."""
    whole = path.read_bytes()
    if not whole.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(whole.rfind(b"\n") + 1)


class Corpus:
    """The file that grows: what is in it decides what may still come."""

    def __init__(self, path: Path):
        self.path = path
        self.quota = Quota()
        self.questions: set[tuple[int, ...]] = set()
        self.tokens = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            mend(path)
            for dialogue in read(path):
                self.note(dialogue)

    def note(self, dialogue: Dialogue) -> None:
        self.quota.count(dialogue)
        self.questions.add(tuple(dialogue.question))
        self.tokens += len(dialogue.answer)

    def add(self, dialogues: Sequence[Dialogue]) -> None:
        """Append those that are new and within the quota."""
        with self.path.open("a", encoding="utf-8") as file:
            for dialogue in dialogues:
                if tuple(dialogue.question) not in self.questions and self.quota.admits(dialogue):
                    file.write(json.dumps(asdict(dialogue), separators=(",", ":")) + "\n")
                    self.note(dialogue)

    def __len__(self) -> int:
        return self.quota.kept


@dataclass(frozen=True)
class Template:
    """The chat template around a question, as ids: default system turn and user header, then what follows it."""

    before: list[int]
    after: list[int]

    def around(self, question: Sequence[int]) -> list[int]:
        return [*self.before, *question, *self.after]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Template":
        before, after = tokenizer.text(tokenizer.chat(MARK)).split(MARK)
        return cls(tokenizer.raw(before), tokenizer.raw(after))


@dataclass(frozen=True)
class Question:
    ids: list[int]
    source: str


def ask(model: Model, template: Template, count: int, rng: torch.Generator, opening: str = "") -> list[Question]:
    """Questions the target makes up when it is left alone behind the user's header; unfinished ones are dropped.

    opening: how they all begin, which steers them to a subject (`def ` to code).
    """
    assert model.tokenizer is not None
    start = [*template.before, *model.tokenizer.raw(opening)]
    texts = [Text(list(start), ASK) for _ in range(count)]
    write(model.decoder, texts, model.stops, QUESTION, rng)
    asked = [t.ids[len(template.before) : -1] for t in texts if t.ended]
    return [Question(ids, "self") for ids in asked if len(ids) >= SHORTEST and not model.stops.intersection(ids)]


def answer(model: Model, template: Template, questions: Sequence[Question], rng: torch.Generator) -> list[Dialogue]:
    """Each question answered once, most of them greedily."""
    warm = (torch.rand(len(questions), generator=rng) >= GREEDY_SHARE).tolist()
    prompts = [template.around(q.ids) for q in questions]
    texts = [Text(list(p), WARM if w else GREEDY) for p, w in zip(prompts, warm, strict=True)]
    write(model.decoder, texts, model.stops, ANSWER, rng)
    return [
        Dialogue(t.ids, len(p), t.sampling.temperature, q.source, t.ended)
        for t, p, q in zip(texts, prompts, questions, strict=True)
    ]


def given(path: Path, tokenizer: Tokenizer, limit: int = QUESTION) -> Iterator[Question]:
    """Questions of a JSON Lines file: `prompt` is the text, `source` where it is from. Long ones are left out."""
    with open_text(path) as file:
        for line in file:
            record = json.loads(line)
            ids = tokenizer.raw(record["prompt"])
            if SHORTEST <= len(ids) <= limit:
                yield Question(ids, record.get("source", path.stem))


def alike(questions: Iterator[Question], size: int) -> Iterator[list[Question]]:
    """Batches of about the same length: what is padded in front of a short question costs as much as a long one."""
    while window := sorted(islice(questions, WINDOW * size), key=lambda q: len(q.ids)):
        groups = [window[i : i + size] for i in range(0, len(window), size)]
        random.Random(len(window[0].ids)).shuffle(groups)  # a run that is stopped has not seen the short ones only
        yield from groups


def grow(
    corpus: Corpus,
    model: Model,
    goal: int,
    size: int,
    seed: int,
    questions: Iterator[Question],
    openings: Sequence[str] = ("",),
) -> None:
    """Append dialogues until the corpus has `goal` of them: given questions while they last, then the target's own."""
    assert model.tokenizer is not None
    template = Template.of(model.tokenizer)
    fresh = alike((q for q in questions if tuple(template.around(q.ids)) not in corpus.questions), size)
    rng = torch.Generator().manual_seed(seed * 1_000_003 + len(corpus))  # a resumed run must not repeat itself
    started, before, turns = time.monotonic(), corpus.tokens, cycle(openings)
    while len(corpus) < goal:
        batch = next(fresh, None) or ask(model, template, size, rng, next(turns))
        corpus.add(answer(model, template, batch, rng) if batch else [])
        rate = (corpus.tokens - before) / (time.monotonic() - started)
        print(
            f"{len(corpus)} of {goal} dialogues, {corpus.tokens:,} answer tokens, {rate:.0f} tokens/s", file=sys.stderr
        )


def export(corpus: Path, path: Path) -> int:
    """Write the dialogues whose question too is the target's own, gzipped; returns how many. `--import` reads them."""
    own = [dialogue for dialogue in read(corpus) if dialogue.source == "self"]
    lines = (json.dumps(asdict(dialogue), separators=(",", ":")) + "\n" for dialogue in own)
    path.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
    return len(own)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m spec_core.training.corpus", description=__doc__)
    parser.add_argument("--dialogues", type=int, default=4000, help="stop when the corpus has that many")
    parser.add_argument("--size", type=int, default=32, help="dialogues written at the same time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--prompts", type=Path, help="JSON Lines file of questions to answer first, with field prompt")
    parser.add_argument("--longest", type=int, default=QUESTION, help="leave out given questions of more tokens")
    parser.add_argument(
        "--opening",
        dest="openings",
        action="append",
        help="how made-up questions begin, such as 'def ' for code; several take turns",
    )
    parser.add_argument(
        "--import", dest="source", type=Path, help="dialogues to start from, in this corpus's own format"
    )
    parser.add_argument("--export", type=Path, help="write the wholly self-written dialogues there and do no more")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.export:
        print(f"{export(corpus_file(), arguments.export)} dialogues in {arguments.export}", file=sys.stderr)
        return
    corpus = Corpus(corpus_file())
    if arguments.source:
        found = list(read(arguments.source))
        random.Random(arguments.seed).shuffle(found)
        corpus.add(found)
    print(f"{len(corpus)} dialogues, {corpus.tokens:,} answer tokens in {corpus.path}", file=sys.stderr)
    if len(corpus) < arguments.dialogues:
        model = load_target(arguments.target)
        assert model.tokenizer is not None
        path, openings = arguments.prompts, [o.replace("\\n", "\n") for o in arguments.openings or [""]]
        questions = given(path, model.tokenizer, arguments.longest) if path else iter(())
        grow(corpus, model, arguments.dialogues, arguments.size, arguments.seed, questions, openings)


if __name__ == "__main__":
    main()
