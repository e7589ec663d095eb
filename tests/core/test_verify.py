"""The two verification rules emit the target's law: exactly, by counting every outcome in fractions, and through the
whole loop, by counting real draws. Each check is shown to fail for rules that are known to be wrong.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from models.load import Model, Network
from spec_core import verify
from spec_core.contract import Clock, Draft, Drafter, Knobs, Method
from spec_core.decode import Plan
from spec_core.methods import discover, find
from spec_core.trace import DraftTree, Sampling, Step
from spec_core.tree import chain, trunk
from spec_core.verify import Walk, law, match, reject, residual
from tests.core.drafters import LONG, Warped, build, logits_of, modest, play, tree_of
from tests.toy import toy_model, toy_networks

# Counting in fractions. A rule's random choices go through `Dice`; `law_of` plays every branch.

GRID = 8  # uniforms are i / 8: exact, because every p / q below is a multiple of 1 / 8
Law = dict[tuple[int, ...], Fraction]
Rule = Callable[[DraftTree, list[Tensor], Tensor, "Dice"], Walk]


class Dice:
    """Follows a script of choices, then takes the first possible one and notes the others as scripts to play."""

    def __init__(self, script: tuple[int, ...]):
        self.script, self.taken = script, ()
        self.weight = Fraction(1)
        self.others: list[tuple[int, ...]] = []

    def pick(self, weights: Sequence[float]) -> int:
        exact = [Fraction(float(w)) for w in weights]
        total = sum(exact, Fraction(0))
        possible = [i for i, w in enumerate(exact) if w > 0]
        if len(self.taken) < len(self.script):
            choice = self.script[len(self.taken)]
        else:
            choice = possible[0]
            self.others += [(*self.taken, other) for other in possible[1:]]
        self.taken += (choice,)
        self.weight *= exact[choice] / total
        return choice

    def uniform(self) -> float:
        """0 included, 1 not, as torch.rand has it."""
        return self.pick([1.0] * GRID) / GRID


def law_of(play_once: Callable[[Dice], tuple[int, ...]]) -> Law:
    """The exact law of an outcome, over all branches of its dice."""
    found: Law = defaultdict(Fraction)
    todo: list[tuple[int, ...]] = [()]
    while todo:
        dice = Dice(todo.pop())
        found[play_once(dice)] += dice.weight
        todo += dice.others
    assert sum(found.values()) == 1
    return dict(found)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules draw from Dice, and rows of "logits" are probabilities already."""
    monkeypatch.setattr(verify, "draw", lambda p, dice: dice.pick(p.tolist()))
    monkeypatch.setattr(verify, "law", lambda logits, sampling: logits)
    monkeypatch.setattr(torch, "rand", lambda size, generator, dtype: generator.uniform())


def row(*sixteenths: int) -> list[float]:
    assert sum(sixteenths) == 16
    return [s / 16 for s in sixteenths]


# p of the token after a text of the vocabulary {0, 1, 2, 3}; q has powers of two only, so that p / q is exact.
P = {
    (): row(5, 0, 8, 3),
    (0,): row(2, 2, 0, 12),
    (1,): row(7, 9, 0, 0),
    (2,): row(2, 4, 4, 6),
    (3,): row(4, 4, 4, 4),
}
Q = {
    (): row(8, 4, 2, 2),
    (0,): row(2, 4, 8, 2),
    (1,): row(4, 4, 4, 4),
    (2,): row(16, 0, 0, 0),
    (3,): row(8, 8, 0, 0),
}
LONGER = {(a, b): row(3, 1 + a + b, 12 - a - b, 0) for a, b in product(range(4), repeat=2)}
TARGET = P | LONGER
SAMPLED = Sampling(temperature=1.0)


def truth(n: int) -> Law:
    """The target's own law of the first n tokens."""
    found: Law = {(): Fraction(1)}
    for _ in range(n):
        longer = {(*t, x): w * Fraction(p) for t, w in found.items() for x, p in enumerate(TARGET[t])}
        found = {t: w for t, w in longer.items() if w > 0}
    return found


def below_root(tree: DraftTree, node: int) -> tuple[int, ...]:
    """The drafted text that leads to a node."""
    return () if node == 0 else (*below_root(tree, tree.parents[node]), tree.tokens[node])


def rows_of(tree: DraftTree) -> Tensor:
    return torch.tensor([TARGET[below_root(tree, node)] for node in tree.kept])


def emitted(tree: DraftTree, q: list[Tensor], rule: Rule, dice: Dice, n: int) -> tuple[int, ...]:
    """The first n tokens: what the rule lets through, then the target's own draws."""
    text = tuple(rule(tree, q, rows_of(tree), dice).tokens(tree))[:n]
    while len(text) < n:
        text += (dice.pick(TARGET[text]),)
    return text


def our_match(tree: DraftTree, q: list[Tensor], rows: Tensor, dice: Any) -> Walk:
    return match(tree, rows, SAMPLED, dice)


def our_reject(tree: DraftTree, q: list[Tensor], rows: Tensor, dice: Any) -> Walk:
    return reject(tree, q, rows, SAMPLED, dice)


# match: any draft that was fixed beforehand

TREES = {
    "nothing": trunk(9),
    "a chain": tree_of(9, [0, 1], [2, 3]),
    "token 0": tree_of(9, [0, 1], [0, 0]),
    "an impossible token": tree_of(9, [0, 1], [1, 3]),
    "siblings": tree_of(9, [0, 0, 0], [0, 1, 2]),
    "siblings that go on": tree_of(9, [0, 0, 1, 1, 2], [2, 0, 1, 3, 3]),
    "the same child three times": tree_of(9, [0, 0, 0, 1, 2, 3], [2, 2, 2, 0, 1, 2]),
    "everything": tree_of(9, [0] * 4 + [1] * 4, [*range(4), *range(4)]),
}


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("tree", TREES.values(), ids=list(TREES))
def test_match_emits_the_targets_law(tree: DraftTree) -> None:
    assert law_of(lambda dice: emitted(tree, [], our_match, dice, 3)) == truth(3)


def draws_again(tree: DraftTree, q: list[Tensor], rows: Tensor, dice: Any) -> Walk:
    """Wrong (E-B21): after a mismatch a fresh token, instead of the very draw that did not match."""
    walk = our_match(tree, q, rows, dice)
    last = tree.kept.index(walk.path[-1])
    return Walk(walk.path, dice.pick(rows[last].tolist()), walk.asked)


def compares_with_argmax(tree: DraftTree, q: list[Tensor], rows: Tensor, dice: Any) -> Walk:
    """Wrong (E-B21): accepts what the target likes best, and draws only the bonus."""
    path = [0]
    while True:
        at = tree.kept.index(path[-1])
        best = int(rows[at].argmax())
        child = next((i for i, p in enumerate(tree.parents) if p == path[-1] and tree.tokens[i] == best), -1)
        if child < 0:
            return Walk(path, dice.pick(rows[at].tolist()), [])
        path.append(child)


def tries_equal_siblings_again(tree: DraftTree, q: list[Tensor], rows: Tensor, dice: Any) -> Walk:
    """Wrong (E-B2): sibling by sibling with accept p, but without taking a refused token's mass away."""
    path = [0]
    while True:
        at = tree.kept.index(path[-1])
        below = [i for i, p in enumerate(tree.parents) if p == path[-1]]
        held = next((c for c in below if dice.uniform() < float(rows[at][tree.tokens[c]])), None)
        if held is None:
            return Walk(path, dice.pick(rows[at].tolist()), [])
        path.append(held)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("rule", [draws_again, compares_with_argmax, tries_equal_siblings_again])
def test_the_count_catches_wrong_ways_to_match(rule: Rule) -> None:
    tree = TREES["the same child three times"]
    assert law_of(lambda dice: emitted(tree, [], rule, dice, 2)) != truth(2)


# reject: chains drawn from q


def drawn(dice: Dice, k: int) -> tuple[DraftTree, list[Tensor]]:
    """A chain of k tokens really drawn from Q."""
    tokens: tuple[int, ...] = ()
    q = [torch.tensor(Q[()])]
    for _ in range(k):
        tokens += (dice.pick(q[-1].tolist()),)
        q.append(torch.tensor(Q[tokens[:1]] if len(tokens) == 1 else row(4, 4, 4, 4)))
    return chain(9, tokens, [0.5] * k, range(k)), q[:k]


def argmax_of(dice: Dice, k: int) -> tuple[DraftTree, list[Tensor]]:
    """A chain of q's favourites, with q's softmax beside it."""
    first = max(range(4), key=lambda t: Q[()][t])
    second = max(range(4), key=lambda t: Q[(first,)][t])
    q = [torch.tensor(Q[()]), torch.tensor(Q[(first,)])]
    return chain(9, [first, second][:k], [0.5] * k, range(k)), q[:k]


Guess = Callable[[Dice, int], tuple[DraftTree, list[Tensor]]]


def through(rule: Rule, guess: Guess, k: int, n: int = 2) -> Law:
    def once(dice: Dice) -> tuple[int, ...]:
        tree, q = guess(dice, k)
        return emitted(tree, q, rule, dice, n)

    return law_of(once)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(("k", "n"), [(1, 2), (2, 3)])
def test_reject_emits_the_targets_law(k: int, n: int) -> None:
    assert through(our_reject, drawn, k, n) == truth(n)


@pytest.mark.usefixtures("exact")
def test_match_is_lossless_for_drawn_guesses_too() -> None:
    assert through(our_match, drawn, 2) == truth(2)


@pytest.mark.usefixtures("exact")
def test_reject_accepts_with_the_overlap_of_p_and_q() -> None:
    """P(first guess holds) = Σ min(p, q), which is more than match's Σ p q."""

    def first(rule: Rule) -> Fraction:
        def once(dice: Dice) -> tuple[int, ...]:
            tree, q = drawn(dice, 1)
            return (len(rule(tree, q, rows_of(tree), dice).path) - 1,)

        return law_of(once)[(1,)]

    pairs = [(Fraction(p), Fraction(q)) for p, q in zip(P[()], Q[()], strict=True)]
    assert first(our_reject) == sum(min(p, q) for p, q in pairs)
    assert first(our_match) == sum(p * q for p, q in pairs) < first(our_reject)


def inverse(weights: list[float], u: float) -> int:
    """The token at u of a cumulative sum; the last one where the sum falls short."""
    for token, total in enumerate(torch.tensor(weights).cumsum(0).tolist()):
        if u < total:
            return token
    return len(weights) - 1


def wrong(accept: Callable[[float, float, float], bool], rest: Callable[[Tensor, Tensor, float, Any], int]) -> Rule:
    """Our rule with another acceptance test or another draw after a rejection."""

    def rule(tree: DraftTree, q: list[Tensor], rows: Tensor, dice: Any) -> Walk:
        path = [0]
        for i, child in enumerate(tree.kept[1:]):
            u, token = dice.uniform(), tree.tokens[child]
            if not accept(u, float(rows[i][token]), float(q[i][token])):
                return Walk(path, rest(rows[i], q[i], u, dice), [])
            path.append(child)
        return Walk(path, dice.pick(rows[len(path) - 1].tolist()), [])

    return rule


def right_test(u: float, p: float, q: float) -> bool:
    return u * q < p


def right_rest(p: Tensor, q: Tensor, u: float, dice: Any) -> int:
    return dice.pick(residual(p, q).tolist())


WRONG = {
    "accepts where p is at least q": wrong(lambda u, p, q: p >= q, right_rest),
    "u may equal p / q": wrong(lambda u, p, q: u * q <= p, right_rest),
    "accepts with p": wrong(lambda u, p, q: u < p, right_rest),
    "draws from p": wrong(right_test, lambda p, q, u, dice: dice.pick(p.tolist())),
    "no clamp": wrong(right_test, lambda p, q, u, dice: dice.pick((p - q).abs().tolist())),
    "not normalised": wrong(right_test, lambda p, q, u, dice: inverse(residual(p, q).tolist(), dice.uniform())),
    "the same uniform again": wrong(
        right_test, lambda p, q, u, dice: inverse((residual(p, q) / residual(p, q).sum()).tolist(), u)
    ),
}


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("rule", WRONG.values(), ids=list(WRONG))
def test_the_count_catches_wrong_ways_to_reject(rule: Rule) -> None:
    assert through(wrong(right_test, right_rest), drawn, 1) == truth(2)
    assert through(rule, drawn, 1) != truth(2)


@pytest.mark.usefixtures("exact")
def test_argmax_guesses_must_not_meet_a_softmax_q() -> None:
    """Why `Draft.q` is there only for drawn tokens: the same rule on q's favourites is not lossless (E-B20)."""
    assert through(our_match, argmax_of, 2) == truth(2)
    assert through(our_reject, argmax_of, 2) != truth(2)


@pytest.mark.usefixtures("exact")
def test_after_a_refused_sibling_the_leaf_speaks_for_itself() -> None:
    """E-B1: the bonus behind a full path is drawn from the leaf's p, whatever was refused beside the path."""
    tree = tree_of(9, [0, 0], [0, 2])
    laws = law_of(lambda dice: emitted(tree, [], our_match, dice, 2))
    for token, p in enumerate(P[(2,)]):
        assert laws.get((2, token), 0) == Fraction(P[()][2]) * Fraction(p)


def test_the_rest_of_p_is_what_q_left_over() -> None:
    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.75, 0.0])
    assert residual(p, q).tolist() == [0.25, 0.0, 0.25]
    assert residual(p, p).tolist() == p.tolist()  # rounding may leave nothing: p itself then


# Temperature and top-p


def slow_law(logits: Sequence[float], temperature: float, top_p: float) -> list[float]:
    """Temperature, then the fewest best tokens that reach top_p; ties to the smaller id."""
    powers = [math.exp((x - max(logits)) / temperature) for x in logits]
    p = [x / sum(powers) for x in powers]
    kept, total = set[int](), 0.0
    for token in sorted(range(len(p)), key=lambda t: (-p[t], t)):
        if total >= top_p:
            break
        kept.add(token)
        total += p[token]
    return [x / total if t in kept else 0.0 for t, x in enumerate(p)]


SETTINGS = [(1.0, 1.0), (0.5, 1.0), (1.0, 0.7), (0.5, 0.7), (2.0, 0.01)]


@pytest.mark.parametrize(("temperature", "top_p"), SETTINGS)
def test_the_law_is_temperature_first_then_top_p(temperature: float, top_p: float) -> None:
    rows = torch.randn(50, 12, generator=torch.Generator().manual_seed(1)) * 2
    ours = law(rows, Sampling(temperature, top_p))
    for given, found in zip(rows.tolist(), ours.tolist(), strict=True):
        assert found == pytest.approx(slow_law(given, temperature, top_p), abs=1e-6)
    assert law(rows[0], Sampling(temperature, top_p)).tolist() == pytest.approx(ours[0].tolist())  # one row alone


def test_at_temperature_0_p_is_the_plain_softmax() -> None:
    rows = torch.tensor([1.0, 3.0, 2.0])
    assert law(rows, Sampling(0.0, 0.5)).tolist() == pytest.approx(slow_law(rows.tolist(), 1.0, 1.0))


@pytest.mark.parametrize(("temperature", "top_p"), SETTINGS)
@pytest.mark.parametrize("rule", ["match", "reject"])
def test_every_draw_comes_from_the_warped_law(
    rule: str, temperature: float, top_p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-B4: the bonus behind a full path too. Guesses are sure here, so the only draws are at known rows."""
    logits = torch.randn(3, 12, generator=torch.Generator().manual_seed(2))
    logits[0, 5] = logits[1, 7] = 60.0  # the target agrees with both guesses
    seen: list[list[float]] = []
    monkeypatch.setattr(verify, "draw", lambda p, rng: seen.append(p.tolist()) or int(p.argmax()))
    tree, sampling = chain(1, [5, 7], [1.0, 1.0], [0, 1]), Sampling(temperature, top_p)
    q = [torch.nn.functional.one_hot(torch.tensor(t), 12).float() for t in (5, 7)] if rule == "reject" else None
    walk = verify.verify(Draft(tree, q), logits, sampling, torch.Generator().manual_seed(0))
    assert walk.path == [0, 1, 2]
    assert len(seen) == (3 if rule == "match" else 1)
    assert seen[-1] == pytest.approx(slow_law(logits[2].tolist(), temperature, top_p), abs=1e-6)


def test_what_has_no_probability_is_never_drawn() -> None:
    """E-B19, and inside a top-p set."""
    rng = torch.Generator().manual_seed(0)
    p = torch.zeros(50)
    p[[3, 17]] = torch.tensor([1e-6, 1.0])
    assert {verify.draw(p, rng) for _ in range(3000)} <= {3, 17}
    logits = torch.tensor([3.0, 2.9, 0.0, -1.0])
    sampling = Sampling(1.0, 0.7)
    assert {verify.choose(logits, sampling, rng) for _ in range(500)} == {0, 1}


def test_a_uniform_of_0_does_not_accept_an_impossible_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda size, generator, dtype: torch.tensor(0.0))
    logits = torch.tensor([[0.0, -math.inf], [0.0, 0.0]])
    q = [torch.tensor([0.0, 1.0])]
    walk = reject(chain(1, [1], [1.0], [0]), q, logits, SAMPLED, torch.Generator())
    assert (walk.path, walk.bonus) == ([0], 0)


def test_greedy_asks_for_the_argmax_and_needs_no_dice() -> None:
    tree = tree_of(9, [0, 0, 2], [1, 2, 3])
    logits = torch.tensor([[0.0, 1, 5, 0], [9, 0, 0, 0], [0, 0, 0, 4], [0, 7, 0, 0]])
    rng = torch.Generator().manual_seed(3)
    before = rng.get_state()
    walk = match(tree, logits, Sampling(), rng)
    assert (walk.path, walk.bonus) == ([0, 2, 3], 1)
    assert torch.equal(rng.get_state(), before)


# Through the whole loop, with real draws

VOCAB = 10


@pytest.fixture(scope="module")
def small() -> tuple[Model, dict[str, Network]]:
    model = toy_model(3, VOCAB)
    model.decoder.lm_head.weight.mul_(0.4)  # flat laws: every token has a say
    model.decoder.lm_head.speed_up()
    return model, toy_networks(model, 2)


class Listening:
    """A drafter whose drafts are kept, q rows included."""

    def __init__(self, inner: Drafter):
        self.inner, self.layers = inner, inner.layers
        self.drafts: list[Draft] = []

    def observe(self, tokens: list[int], features: Tensor, clock: Clock) -> None:
        self.inner.observe(tokens, features, clock)

    def propose(self, root: int, rng: torch.Generator, clock: Clock) -> Draft:
        self.drafts.append(self.inner.propose(root, rng, clock))
        return self.drafts[-1]


def foretold(draft: Draft, node: int, p: Sequence[float]) -> tuple[set[int], set[int], set[int]]:
    """Where wrong rules put too much or too little: the drafter's favourite, tokens with q > p, the target's favourite.

    All three are fixed by the text so far, before drafter or target draw, so each must come with its own p.
    """
    best = {p.index(max(p))}
    if draft.q is not None and node < len(draft.q):
        q = draft.q[node].tolist()
        return {q.index(max(q))}, {t for t in range(len(p)) if q[t] > p[t]}, best
    below = [i for i, parent in enumerate(draft.tree.parents) if parent == node]
    guess = {draft.tree.tokens[max(below, key=lambda i: draft.tree.probs[i])]} if below else set()
    return guess, set(draft.tree.tokens[i] for i in below), best


Call = tuple[float, bool]  # the probability of what was foretold, and whether it came


def calls(steps: list[Step], drafts: list[Draft], prompt: list[int], model: Model, sampling: Sampling) -> list[Call]:
    """Three per token behind the first. A token's law is known from one pass over the finished text, without cache."""
    text = prompt + [t for step in steps for t in step.committed]
    logits, at = logits_of(model, text).tolist(), len(prompt) + 1
    found: list[Call] = []
    for step, draft in zip(steps[1:], drafts, strict=True):
        for node, token in zip(step.verdict.path, step.committed, strict=False):
            p = slow_law(logits[at - 1], sampling.temperature, sampling.top_p)
            assert p[token] > 0, "a token of probability 0 came out"
            found += [(sum(p[t] for t in tokens), token in tokens) for tokens in foretold(draft, node, p)]
            at += 1
    return found


def deviation(found: Sequence[Call]) -> float:
    """Hits less expected hits, in standard deviations; each call is fair given all before it."""
    spread = math.sqrt(sum(p * (1 - p) for p, _ in found))
    return sum(came - p for p, came in found) / spread if spread else 0.0


def stray(drafter: Drafter, model: Model, sampling: Sampling, tokens: int = 120) -> float:
    """How far a long run strays from the target's law, in standard deviations, toward whatever it strays most."""
    prompt, heard = [1, 4, 2], Listening(drafter)
    played = play(model, heard, Plan(prompt, tokens, LONG, sampling=sampling))
    found = calls(played.steps, heard.drafts, prompt, model, sampling)
    return max(abs(deviation(found[i::3])) for i in range(3))


def shapes() -> Iterator[tuple[Method, Knobs]]:
    """Every method, in every shape its card offers, with little to compute."""
    for method in discover().values():
        choices = [(k.name, choice) for k in method.knobs for choice in k.choices] or [("", "")]
        for name, choice in choices:
            yield method, modest(method, 3) | ({name: choice} if name else {})


SHAPES = [pytest.param(m, k, id="-".join([m.key, *(v for v in k.values() if isinstance(v, str))])) for m, k in shapes()]
Pair = tuple[Model, dict[str, Network]]


@pytest.mark.parametrize(("method", "knobs"), SHAPES)
def test_a_long_run_follows_the_targets_law(method: Method, knobs: Knobs, small: Pair) -> None:
    model, networks = small
    sampling = Sampling(1.0, seed=7)
    assert stray(build(method, model, networks, knobs, sampling), model, sampling) < 4


@pytest.mark.parametrize(("temperature", "top_p"), [(0.5, 1.0), (1.0, 0.7)])
@pytest.mark.parametrize("key", ["eagle", "dflash"])
def test_a_long_run_follows_the_warped_law(key: str, temperature: float, top_p: float, small: Pair) -> None:
    model, networks = small
    sampling, method = Sampling(temperature, top_p, seed=5), find(key)
    knobs = modest(method, 3) | ({"shape": "sampled"} if key == "eagle" else {})
    drafter = build(method, model, networks, knobs, sampling)
    assert stray(drafter, model, sampling) < 4


class Mixed:
    """Wrong on purpose: proposes the favourite and hands over the q row as if it had been drawn."""

    def __init__(self, inner: Drafter):
        self.inner, self.layers = inner, inner.layers

    def observe(self, tokens: list[int], features: Tensor, clock: Clock) -> None:
        self.inner.observe(tokens, features, clock)

    def propose(self, root: int, rng: torch.Generator, clock: Clock) -> Draft:
        draft = self.inner.propose(root, rng, clock)
        assert draft.q is not None
        guess = int(draft.q[0].argmax())
        return Draft(chain(root, [guess], [float(draft.q[0][guess])], [0]), draft.q)


def drawn_chain(small: Pair, sampling: Sampling) -> Drafter:
    """EAGLE-3 has an LM head of its own, so that its q differs from p as much as it can."""
    return build(find("eagle3"), small[0], small[1], {"shape": "sampled", "depth": 1}, sampling)


def test_a_long_run_tells_right_from_wrong(small: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run by our rule, with argmax guesses under a softmax q, and with p in place of the residual."""
    sampling = Sampling(1.0, seed=7)
    assert stray(drawn_chain(small, sampling), small[0], sampling, 300) < 4
    assert stray(Mixed(drawn_chain(small, sampling)), small[0], sampling, 300) > 5
    monkeypatch.setattr(verify, "residual", lambda p, q: p)
    assert stray(drawn_chain(small, sampling), small[0], sampling, 300) > 5


def test_a_long_run_shows_a_forgotten_temperature(small: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "law", lambda logits, sampling: torch.softmax(logits, dim=-1))
    sampling = Sampling(0.25, seed=7)
    assert stray(drawn_chain(small, sampling), small[0], sampling) > 5


def test_argmax_blocks_hold_at_least_as_often_as_blocks_of_draws(small: Pair) -> None:
    """D-T21: slots are read independently, so drawing each by itself gives a block that hangs together worse."""
    model, networks = small
    rng = torch.Generator().manual_seed(1)

    def drawn_slots(tree: DraftTree) -> list[int]:
        """A draw per slot in place of the favourite, from the law the block's own record shows."""
        tokens = [tree.tokens[0]]
        for lost, guess, q in zip(tree.others, tree.tokens[1:], tree.probs[1:], strict=True):
            named = torch.tensor([q, *lost.probs])
            tokens.append([guess, *lost.tokens][verify.draw(named, rng)])
        return tokens

    def held(sampling: Sampling, warped: bool) -> int:
        drafter = build(find("dflash"), model, networks, {"block": 4}, sampling)
        drafter = Warped(drafter, drawn_slots) if warped else drafter
        steps = play(model, drafter, Plan([1, 4, 2], 80, LONG, sampling=sampling)).steps
        return sum(len(step.verdict.path) - 1 for step in steps)

    argmax, draws = (held(Sampling(1.0, seed=2), warped) for warped in (False, True))
    assert argmax >= draws > 0


# What is recorded beside a tested guess


def test_both_laws_stand_beside_every_guess_tested_with_reject() -> None:
    """All words are named or in the rest, and what p has over q is what the residual is drawn from."""
    logits = torch.randn(4, 40, generator=torch.Generator().manual_seed(5)) * 2
    q = torch.softmax(torch.randn(3, 40, generator=torch.Generator().manual_seed(6)) * 2, dim=-1)
    draft = Draft(chain(1, [5, 7, 9], [0.1, 0.1, 0.1], [0, 1, 2]), list(q))
    walk = verify.verify(draft, logits, SAMPLED, torch.Generator().manual_seed(2))
    found = verify.report(draft, logits, SAMPLED, walk)
    tested = [asked for asked in found.decisions if asked.u is not None]
    assert [laws.node for laws in found.laws] == [asked.node for asked in tested]
    assert tested
    p = verify.law(logits, SAMPLED)
    for laws, asked in zip(found.laws, tested, strict=True):
        assert draft.tree.tokens[asked.child] in laws.tokens
        assert asked.accepted or found.bonus in laws.tokens
        assert {int(p[laws.node].argmax()), int(q[laws.node].argmax())} <= set(laws.tokens)
        assert sum(laws.p) + laws.rest[0] == pytest.approx(1, abs=1e-3)
        assert sum(laws.q) + laws.rest[1] == pytest.approx(1, abs=1e-3)
        assert laws.over == pytest.approx([max(0, a - b) for a, b in zip(laws.p, laws.q, strict=True)], abs=1e-4)
        assert sum(laws.over) + laws.rest[2] == pytest.approx(
            float(residual(p[laws.node], q[laws.node]).sum()), abs=1e-3
        )


def test_no_laws_are_written_where_the_target_was_asked_for_its_token() -> None:
    draft = Draft(chain(1, [5, 7], [0.1, 0.1], [0, 1]))
    logits = torch.zeros(3, 12)
    walk = verify.verify(draft, logits, SAMPLED, torch.Generator().manual_seed(0))
    assert verify.report(draft, logits, SAMPLED, walk).laws == []
