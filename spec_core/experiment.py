"""`python -m spec_core.experiment`: does speculation change what is drawn? Thousands of short continuations of a text,
by every method, through the loop and the rules that decoding uses, each counted against the target's own exact law.

Two arms are wrong on purpose: drafters that lie about how their guesses were made. The test has to catch them.
"""

import datetime
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from models.load import Model, load_target
from spec_core.command import Parser, Ready, get_ready, guarded, say
from spec_core.contract import Clock, Draft, Drafter, Knobs, Scores
from spec_core.decode import Plan, decode
from spec_core.draws import DOUBT, LEAST, Arm, Experiment, Spot, save, verdict
from spec_core.methods import discover
from spec_core.presets import preset
from spec_core.prompts import load
from spec_core.record import select
from spec_core.run import chat_prompt, drafter_card, target_card
from spec_core.target import CachedTarget
from spec_core.trace import DraftTree, Sampling, Step, ids
from spec_core.tree import chain
from spec_core.verify import law

LENGTH = 2  # tokens of a continuation
ROOM = 256  # context kept free for it, so that no draft is cut short
FAR = 96  # of the likeliest first tokens, how many are answered in one pass beforehand
WARMTH = 1.0
OUT = Path("assets/measurements/draws.json")

Tokens = tuple[int, ...]
Row = tuple[Tensor, Tensor]  # logits [vocab], features [width]


def fan(root: int, tokens: Sequence[int]) -> DraftTree:
    """Many guesses of one and the same place."""
    n = len(tokens)
    return DraftTree(
        [root, *tokens], [-1, *[0] * n], [-1, *[0] * n], [1.0] * (n + 1), [True] * (n + 1), [*range(n + 1)]
    )


def paths(tree: DraftTree) -> list[Tokens]:
    """The tokens that lead to each node, the root's first and its own last."""
    found: list[Tokens] = [(tree.tokens[0],)]
    for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
        found.append((*found[parent], token))
    return found


@dataclass
class Answers:
    """What the target says behind `before`, `root` and whatever follows: one row for every path of tokens.

    The target is a function of the tokens it reads, so each path is asked once, however often it is drawn.
    """

    model: Model
    layers: tuple[int, ...]
    before: list[int]
    root: int
    rows: dict[Tokens, Row] = field(default_factory=dict[Tokens, Row])

    def __post_init__(self) -> None:
        self.target = CachedTarget(self.model, self.layers, len(self.before) + LENGTH)
        self.prompt = self.target.prefill(self.before, Clock())
        self.ask([])
        self.ask(self.law((self.root,)).topk(min(FAR, self.model.decoder.config.vocab)).indices.tolist())

    def beginning(self) -> Scores:
        """The prompt's features; its logits name the root, so that every run starts there."""
        logits = torch.full_like(self.prompt.logits, -torch.inf)
        logits[0, self.root] = 0.0
        return Scores(logits, self.prompt.features)

    def ask(self, first: Sequence[int]) -> None:
        """One pass over the root and these tokens behind it."""
        tree = fan(self.root, first)
        scores = self.target.score(tree, Clock())
        self.target.cache.crop(len(self.before))
        for i, path in enumerate(paths(tree)):
            self.rows.setdefault(path, (scores.logits[i], scores.features[i]))

    def at(self, path: Tokens) -> Row:
        """What follows `path`; beyond the last token that is wanted any answer will do, since it is cut off."""
        if len(path) > LENGTH:
            return self.rows[(self.root,)]
        if path not in self.rows:
            self.ask([path[-1]])
        return self.rows[path]

    def law(self, path: Tokens) -> Tensor:
        """The exact probabilities of the token after `path`."""
        return law(self.at(path)[0], Sampling(WARMTH))


class Remembering:
    """The target of one run: it keeps no cache, only which tokens are sure."""

    def __init__(self, answers: Answers):
        self.answers = answers
        self.sure: Tokens = ()
        self.asked: list[Tokens] = []

    def prefill(self, ids: list[int], clock: Clock) -> Scores:
        return self.answers.beginning()

    def score(self, tree: DraftTree, clock: Clock) -> Scores:
        every = paths(tree)
        self.asked = [(*self.sure, *every[node]) for node in tree.kept]
        logits, features = zip(*map(self.answers.at, self.asked), strict=True)
        return Scores(torch.stack(logits), torch.stack(features))

    def commit(self, rows: list[int]) -> None:
        self.sure = self.asked[rows[-1]]


class Recalling:
    """A drafter whose guesses hang on nothing but the tokens before: each draft is made once and then recalled."""

    def __init__(self, drafter: Drafter, known: dict[Tokens, Draft]):
        self.drafter, self.known, self.layers = drafter, known, drafter.layers
        self.seen: list[int] = []

    def observe(self, tokens: list[int], features: Tensor, clock: Clock) -> None:
        self.drafter.observe(tokens, features, clock)
        self.seen += tokens

    def propose(self, root: int, rng: torch.Generator, clock: Clock) -> Draft:
        key = (*self.seen, root)
        draft = self.known.get(key) or self.drafter.propose(root, rng, clock)
        if draft.q is None:
            self.known[key] = draft
        return draft


class Lying:
    """A drafter of one drawn guess that says something untrue about it."""

    def __init__(self, drafter: Drafter, lie: Callable[[Draft], Draft]):
        self.drafter, self.lie, self.layers = drafter, lie, drafter.layers

    def observe(self, tokens: list[int], features: Tensor, clock: Clock) -> None:
        self.drafter.observe(tokens, features, clock)

    def propose(self, root: int, rng: torch.Generator, clock: Clock) -> Draft:
        return self.lie(self.drafter.propose(root, rng, clock))


def favourite(draft: Draft) -> Draft:
    """q's likeliest token, shown with q as if it had been drawn from it."""
    assert draft.q is not None
    token = int(draft.q[0].argmax())
    return Draft(chain(draft.tree.tokens[0], [token], [float(draft.q[0][token])], [0]), draft.q)


def certain(draft: Draft) -> Draft:
    """A drawn token that claims q = 1: it is then accepted with p, where p / q would be right."""
    assert draft.q is not None
    return Draft(draft.tree, [torch.ones_like(row) for row in draft.q])


LIES: dict[str, Callable[[Draft], Draft]] = {"argmax": favourite, "p": certain}


@dataclass(frozen=True)
class Way:
    """How to draw: a method, its knobs, and what is spoilt on purpose."""

    ready: Ready
    knobs: Knobs
    wrong: str = ""

    def drafter(self, model: Model, sampling: Sampling, known: dict[Tokens, Draft]) -> Drafter:
        made: Drafter = self.ready.method.build(
            model, self.ready.network, self.ready.method.settle(self.knobs), sampling
        )
        return Lying(made, LIES[self.wrong]) if self.wrong else Recalling(made, known)


def ways(ready: Sequence[Ready], device: str) -> list[Way]:
    """Every method as it is fastest on that kind of device, then the chains drawn from q, then one of those spoilt."""
    drawn = [one for one in ready if one.method.drawn]
    found = [Way(one, preset(one.method, "this device", kind=device)) for one in ready]
    found += [Way(one, {**one.method.drawn, "depth": LENGTH}) for one in drawn]
    return found + [Way(drawn[-1], {**drawn[-1].method.drawn, "depth": 1}, wrong) for wrong in LIES if drawn]


@dataclass
class Tally:
    """What one arm drew."""

    counts: Counter[Tokens] = field(default_factory=Counter[Tokens])
    asked: int = 0
    held: int = 0

    def add(self, steps: list[Step]) -> None:
        """A finished run: its continuation, and how its first guess fared."""
        self.counts[tuple(token for step in steps for token in step.committed)[1:]] += 1
        if len(steps[1].draft.kept) > 1:
            self.asked += 1
            self.held += steps[1].verdict.decisions[0].accepted

    def arm(self, way: Way, continuations: list[Tokens]) -> Arm:
        listed = [self.counts[tokens] for tokens in continuations]
        counts = [*listed, self.counts.total() - sum(listed)]
        return Arm(way.ready.method.key, dict(way.knobs), counts, self.asked, self.held, way.wrong)


def draw(answers: Answers, way: Way, n: int, first_seed: int) -> Tally:
    """`n` continuations, every one a run of the loop with a seed of its own."""
    tally, known = Tally(), dict[Tokens, Draft]()
    limit = len(answers.before) + ROOM
    for seed in range(first_seed, first_seed + n):
        sampling = Sampling(WARMTH, seed=seed)
        plan = Plan(answers.before, 1 + LENGTH, limit, sampling=sampling)
        drafter = way.drafter(answers.model, sampling, known)
        tally.add(list(decode(Remembering(answers), drafter, plan, Clock())))
    return tally


def expected(answers: Answers, n: int) -> tuple[list[Tokens], list[float]]:
    """Continuations expected often enough in `n` draws, likeliest first, and their probabilities."""
    found: dict[Tokens, float] = {}
    for token, p in likely(answers.law((answers.root,)), LEAST / n):
        for second, share in likely(answers.law((answers.root, token)), LEAST / n / p):
            found[(token, second)] = p * share
    order = sorted(found, key=lambda tokens: -found[tokens])
    return order, [found[tokens] for tokens in order]


def likely(p: Tensor, least: float) -> Iterator[tuple[int, float]]:
    yield from ((int(token), float(p[token])) for token in (p >= least).nonzero()[:, 0])


def spot(model: Model, ready: Sequence[Ready], prompt: list[int], answer: list[int], n: int) -> Spot:
    """All arms at the place behind `answer`, whose last token is the root."""
    known: dict[tuple[int, ...], Answers] = {}
    arms: list[Arm] = []
    continuations: list[Tokens] = []
    law_: list[float] = []
    for place, way in enumerate(ways(ready, model.device.type)):
        layers = tuple(way.drafter(model, Sampling(WARMTH), {}).layers)
        if layers not in known:
            known[layers] = Answers(model, layers, prompt + answer[:-1], answer[-1])
        if not continuations:
            continuations, law_ = expected(known[layers], n)
        arms.append(draw(known[layers], way, n, place * n).arm(way, continuations))
        say(line(arms[-1], [*law_, 1 - sum(law_)]))
    law_ = [*law_, max(0.0, 1 - sum(law_))]
    return Spot(answer[:-1], answer[-1], [list(tokens) for tokens in continuations], law_, arms)


def line(arm: Arm, law_: list[float]) -> str:
    """An arm in one line."""
    found = verdict(arm.counts, law_)
    name = f"{arm.method}, {arm.knobs.get('shape', 'as preset')}{f', wrong: {arm.wrong}' if arm.wrong else ''}"
    held = f", {arm.held / arm.asked:.0%} of first guesses held" if arm.asked else ""
    return f"{name}: chi-square {found.x:.1f} of {found.df}, chance {found.chance:.2g}{held}"


def experiment(model: Model, key: str, text: str, after: Sequence[int], n: int) -> Experiment:
    """The whole of it, on the answer the target itself gives to that prompt."""
    ready, missing = get_ready(model, list(discover().values()))
    for method, reason in missing.items():
        say(f"{method} is left out: {reason}")
    prompt = chat_prompt(model, text)
    answer = ids(ready[0].decode(model, prompt, {}, Sampling(), max(after) + 1))
    with torch.inference_mode():
        spots = [spot(model, ready, prompt.ids, answer[: place + 1], n) for place in after]
    word = model.tokenizer.word if model.tokenizer else str
    named = {t for one in spots for tokens in (one.before, [one.root], *one.continuations) for t in tokens}
    return Experiment(
        id=uuid.uuid4().hex[:12],
        date=datetime.date.today().isoformat(),
        device=model.device_name,
        dtype=model.number_type,
        target=target_card(model),
        drafters={one.method.key: drafter_card(model, one.network) for one in ready if one.network},
        prompt=key,
        sampling=Sampling(WARMTH),
        draws=n,
        spots=spots,
        words={token: word(token) for token in sorted(named)},
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m spec_core.experiment", description="Count what sampling with speculation draws.")
    parser.add_argument("--prompts", type=Path, default=Path("assets/prompts/traces.jsonl"), metavar="FILE.jsonl")
    parser.add_argument("--prompt", default="story", metavar="KEY")
    parser.add_argument("--after", default="18,30", metavar="N", help="places: tokens of the answer before the draws")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--json", type=Path, default=OUT, metavar="FILE")
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(argv)
    question = select(load(args.prompts), args.prompt)[0]
    model = load_target(args.target, args.device)
    found = experiment(model, question.key, question.text, [int(n) for n in args.after.split(",")], args.draws)
    save(found, args.json)
    say(f"written to {args.json}")
    wrong = [arm for one in found.spots for arm in one.arms if verdict(arm.counts, one.law).fits == bool(arm.wrong)]
    for arm in wrong:
        say(f"{arm.method} {arm.wrong}: {'not caught' if arm.wrong else f'less likely than {DOUBT} by chance'}")
    return 1 if wrong else 0


def command(argv: Sequence[str] | None = None) -> int:
    return guarded(lambda: main(argv))


if __name__ == "__main__":
    raise SystemExit(command())
