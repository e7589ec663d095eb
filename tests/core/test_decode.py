"""The loop is lossless: greedy text equals plain decoding, whatever a drafter says, wherever a run ends.

Methods are discovered, never listed; the truth is recomputed without cache or tree for every token.
"""

import random
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from models.catalog import BUNDLED
from models.load import Model, Network, load_target
from spec_core import contract
from spec_core.contract import Clock, Drafter, Knobs, Method
from spec_core.decode import Plan
from spec_core.methods import discover
from spec_core.run import Request, chat_prompt, collect, network_for, run
from spec_core.target import CachedTarget
from spec_core.trace import DraftTree, Prompt, Sampling, Step, Trace, accepted, depths, difference, ids, tau
from spec_core.tree import trunk
from tests.core.drafters import (
    LONG,
    Scripted,
    Warped,
    build,
    bushy_mirror,
    greedy,
    mirror,
    modest,
    play,
    tree_of,
)
from tests.toy import MASK, toy_model, toy_networks

METHODS = list(discover().values())
VOCAB, STOP = 64, 63
PROMPTS = ([5], [7, 11, 7, 11, 30, 2, 9])
NEAR_TIE = 1e-4  # DESIGN §4: the only gap at which a text may differ


def corners(method: Method) -> Iterator[tuple[str, Knobs]]:
    """Settings that bring out every mechanism of a method, read off its card."""
    numbers = [k for k in method.knobs if type(k.published) is int]
    yield "published", {}
    if numbers:
        yield "least", {k.name: k.low or 1 for k in numbers}
        yield "most", {k.name: k.high or 1 for k in numbers}
    for knob in method.knobs:
        others = knob.choices if isinstance(knob.published, str) else ("true",) if knob.published is False else ()
        for choice in others:
            yield f"{knob.name}={choice}", modest(method) | {knob.name: choice}


CORNERS = [pytest.param(m, knobs, id=f"{m.key}-{name}") for m in METHODS for name, knobs in corners(m)]
EVERY_METHOD = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.key)


@pytest.fixture(scope="module")
def truths(model: Model) -> list[list[int]]:
    """Plain decoding's text behind each prompt, longer than any run here."""
    return [greedy(model, prompt, 48) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def full(truths: list[list[int]]) -> list[int]:
    """The second prompt with its answer."""
    return [*PROMPTS[1], *truths[1]]


def test_the_toy_target_is_no_coin_toss(model: Model, truths: list[list[int]]) -> None:
    """Its text varies and has no near-ties, so that equal ids mean something."""
    for prompt, truth in zip(PROMPTS, truths, strict=True):
        trace = collect(run(model, None, Request(discover()["plain"], Prompt("", prompt, "ids"), {}, budget=48)))
        gaps = [w.probs[0] - w.probs[1] for step in trace.steps for w in step.verdict.wanted]
        assert ids(trace) == truth
        assert min(gaps) > NEAR_TIE
        assert len(set(truth)) > 10


# Every method, with random weights and with its guesses replaced


@pytest.mark.parametrize(("method", "knobs"), CORNERS)
def test_greedy_text_is_plain_decodings(
    method: Method, knobs: Knobs, model: Model, networks: dict[str, Network], truths: list[list[int]]
) -> None:
    for prompt, truth in zip(PROMPTS, truths, strict=True):
        drafter = build(method, model, networks, knobs, Sampling())
        played = play(model, drafter, Plan(prompt, 8, LONG))
        assert (played.ids, played.reason) == (truth[:8], "length")


WARPS: dict[str, Callable[[DraftTree], list[int]]] = {
    "token 0": lambda tree: [0] * len(tree.tokens),
    "the mask": lambda tree: [MASK] * len(tree.tokens),
    "the stop token": lambda tree: [STOP] * len(tree.tokens),
    "the root again": lambda tree: [tree.tokens[0]] * len(tree.tokens),
    "the same below the same": lambda tree: [t // 8 * 8 for t in tree.tokens],
    "its opposite": lambda tree: [VOCAB - 1 - t for t in tree.tokens],
}


@pytest.mark.parametrize("warp", WARPS.values(), ids=list(WARPS))
@EVERY_METHOD
def test_hostile_guesses_change_nothing(
    method: Method, warp: Callable[[DraftTree], list[int]], model: Model, networks: dict[str, Network]
) -> None:
    truth = greedy(model, PROMPTS[1], 10)
    assert STOP not in truth, "choose another stop token: the stop warp must only ever be a wrong guess"
    drafter = Warped(build(method, model, networks, modest(method), Sampling()), warp)
    played = play(model, drafter, Plan(PROMPTS[1], 10, LONG, frozenset({STOP})))
    assert (played.ids, played.reason) == (truth, "length")


@EVERY_METHOD
def test_every_draft_continues_as_if_the_drafter_were_new(
    method: Method, model: Model, networks: dict[str, Network], full: list[int]
) -> None:
    """Rejections leave nothing behind: after mixed rounds a drafter says what a fresh one says of the same text."""
    watched = Corrected(build(method, model, networks, modest(method), Sampling()), full)
    play(model, watched, Plan(PROMPTS[1], 14, LONG))
    assert len(watched.drafts) > 4
    for at, tree in watched.drafts:
        alone = build(method, model, networks, modest(method), Sampling())
        scores = CachedTarget(model, alone.layers, LONG).prefill(full[: at - 1], Clock())
        alone.observe(full[: at - 1], scores.features, Clock())
        fresh = alone.propose(full[at - 1], torch.Generator(), Clock()).tree
        assert (fresh.tokens, fresh.parents, fresh.kept) == (tree.tokens, tree.parents, tree.kept)
        assert fresh.probs == pytest.approx(tree.probs, abs=2e-3)  # random heads amplify rounding


class Corrected(Warped):
    """A method's drafter whose guesses are put right down to level 0, 1, 2, 3 in turn; remembers what it had said."""

    def __init__(self, inner: Drafter, full: list[int]):
        super().__init__(inner, self.correct)
        self.full, self.sure = full, 0
        self.drafts: list[tuple[int, DraftTree]] = []

    def observe(self, tokens: list[int], features: torch.Tensor, clock: Clock) -> None:
        self.sure += len(tokens)
        super().observe(tokens, features, clock)

    def correct(self, tree: DraftTree) -> list[int]:
        good = len(self.drafts) % 4
        self.drafts.append((self.sure + 1, tree))
        right = self.full[self.sure :]
        return [right[d] if d <= good else (right[d] + 1) % VOCAB for d in depths(tree)]


# Drafts of any shape


def nothing(text: list[int]) -> DraftTree:
    return trunk(text[-1])


def jungle(text: list[int]) -> DraftTree:
    """200 nodes anywhere, with equal siblings and branches that go nowhere."""
    dice = random.Random(sum(text) + len(text))
    parents = [dice.randrange(node) for node in range(1, 201)]
    return tree_of(text[-1], parents, [dice.randrange(VOCAB) for _ in parents])


def star(text: list[int]) -> DraftTree:
    """The whole vocabulary as siblings: something always holds, and it is never the first."""
    return tree_of(text[-1], [0] * VOCAB, list(reversed(range(VOCAB))))


@pytest.mark.parametrize("make", [nothing, jungle, star], ids=lambda make: make.__name__)
def test_any_shape_of_draft_is_lossless(
    make: Callable[[list[int]], DraftTree], model: Model, truths: list[list[int]]
) -> None:
    for prompt, truth in zip(PROMPTS, truths, strict=True):
        played = play(model, Scripted(make), Plan(prompt, 12, LONG))
        assert played.ids == truth[:12]
        if make is star:
            assert [accepted(step) for step in played.steps[1:-1]] == [1] * 5


def test_a_sibling_that_comes_second_is_followed_with_its_own_rows(model: Model, full: list[int]) -> None:
    """Tokens, features and cache rows of a scattered path are moved together (the cache is compared in `play`)."""
    layers = (0, 2, 4)
    drafter = bushy_mirror(full, 3, 1, VOCAB, layers)
    played = play(model, drafter, Plan(PROMPTS[1], 20, LONG))
    assert played.ids == full[7:27]
    assert [len(step.committed) for step in played.steps] == [1, 4, 4, 4, 4, 3]
    fresh = CachedTarget(model, layers, LONG).prefill(drafter.text, Clock())
    assert drafter.text == full[:26]  # all but the newest, whose features nobody knows yet
    torch.testing.assert_close(torch.cat(drafter.features), fresh.features, atol=2e-4, rtol=1e-3)


# Where a draft breaks


@pytest.mark.parametrize("good", [0, 1, 2, 4, 5], ids=["first", "second", "middle", "last", "none is wrong"])
def test_a_draft_holds_up_to_its_first_wrong_guess(good: int, model: Model, full: list[int]) -> None:
    played = play(model, mirror(full, 5, good, VOCAB), Plan(PROMPTS[1], 20, LONG))
    assert played.ids == full[7:27]
    for step in played.steps[1:-1]:
        assert (len(step.verdict.path) - 1, len(step.committed)) == (good, good + 1)
        failed = [d for d in step.verdict.decisions if not d.accepted]
        assert [d.node for d in failed] == [good]


# Where a run ends


@pytest.mark.parametrize("at", range(1, 9))
def test_nothing_follows_a_stop_token(at: int, model: Model, full: list[int]) -> None:
    """Steps of a perfect drafter end after 1, 5, 9 tokens: `at` walks the stop through a draft, its bonus included."""
    answer = full[7:]
    stop = answer[at]
    end = answer.index(stop) + 1
    played = play(model, mirror(full, 3, 3, VOCAB), Plan(PROMPTS[1], 30, LONG, frozenset({stop})))
    assert (played.ids, played.reason) == (answer[:end], "stop")
    sizes = [len(step.committed) for step in played.steps]
    assert sizes == [1, 4, 4, 4][: len(sizes) - 1] + [(end - 1) % 4 or 4 if end > 1 else 1]
    assert played.target.cache.length == 7 + end - 1
    assert sum(accepted(step) + 1 for step in played.steps[1:]) >= end - 1


def test_tau_does_not_count_what_was_drafted_behind_the_stop(model: Model, full: list[int]) -> None:
    stop = next(t for i, t in enumerate(full[7:]) if i == 2)
    assert full[7:].index(stop) == 2
    played = play(model, mirror(full, 8, 8, VOCAB), Plan(PROMPTS[1], 30, LONG, frozenset({stop})))
    assert [len(step.committed) for step in played.steps] == [1, 2]
    assert len(played.steps[1].verdict.path) == 9  # the draft went on behind the stop, and the target agreed
    assert tau(Trace(any_header(model), played.steps)) == 2.0


def any_header(model: Model) -> Any:
    return next(run(model, None, Request(discover()["plain"], Prompt("", [1], "ids"), {}, budget=1)))


def test_a_real_token_equal_to_the_mask_is_kept(model: Model, networks: dict[str, Network]) -> None:
    """The mask is an ordinary row: as text it stays, as a stop token it stops only where it is really said."""
    for method in METHODS:
        prompt = [3, MASK, 5, MASK]
        truth = greedy(model, prompt, 8)
        drafter = build(method, model, networks, modest(method), Sampling())
        played = play(model, drafter, Plan(prompt, 8, LONG, frozenset({MASK})))
        cut = truth.index(MASK) + 1 if MASK in truth else 8
        assert played.ids == truth[:cut]


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
@EVERY_METHOD
def test_a_budget_is_met_exactly(
    method: Method, budget: int, model: Model, networks: dict[str, Network], truths: list[list[int]]
) -> None:
    drafter = build(method, model, networks, modest(method), Sampling())
    played = play(model, drafter, Plan(PROMPTS[1], budget, LONG))
    assert (played.ids, played.reason) == (truths[1][:budget], "length")


@pytest.mark.parametrize("budget", range(1, 18))
def test_a_budget_ends_inside_a_draft(budget: int, model: Model, full: list[int]) -> None:
    played = play(model, mirror(full, 7, 7, VOCAB), Plan(PROMPTS[1], budget, LONG))
    assert (played.ids, played.reason) == (full[7 : 7 + budget], "length")
    assert len(played.steps) == 1 + -(-(budget - 1) // 8)


@pytest.mark.parametrize("room", [1, 2, 3, 6])
@EVERY_METHOD
def test_a_full_context_ends_the_run(
    method: Method, room: int, model: Model, networks: dict[str, Network], truths: list[list[int]]
) -> None:
    """`play` checks at every step that no node was asked about at or beyond the limit."""
    drafter = build(method, model, networks, modest(method), Sampling())
    played = play(model, drafter, Plan(PROMPTS[1], 40, 7 + room))
    assert (played.ids, played.reason) == (truths[1][:room], "context")


@pytest.mark.parametrize("limit", range(9, 20))
def test_a_perfect_draft_is_cut_at_the_context_limit(limit: int, model: Model, full: list[int]) -> None:
    played = play(model, mirror(full, 5, 5, VOCAB), Plan(PROMPTS[1], 40, limit))
    assert (played.ids, played.reason) == (full[7:limit], "context")


@EVERY_METHOD
def test_the_models_own_context_can_be_filled(method: Method, model: Model, networks: dict[str, Network]) -> None:
    prompt = [random.Random(3).randrange(VOCAB) for _ in range(LONG - 3)]
    request = Request(method, Prompt("", prompt, "ids"), modest(method), budget=40)
    trace = collect(run(model, networks.get(method.network), request))
    assert trace.end is not None
    assert (ids(trace), trace.end.reason) == (greedy(model, prompt, 3), "context")


# Runs do not know of each other


def timeless(trace: Trace) -> list[Step]:
    """A trace's steps without their times."""
    return [msgspec.structs.replace(step, passes=[]) for step in trace.steps]


@EVERY_METHOD
def test_two_runs_on_one_model_are_two_fresh_ones(method: Method) -> None:
    def answer(model: Model, networks: dict[str, Network], prompt: list[int]) -> list[Step]:
        request = Request(method, Prompt("", prompt, "ids"), modest(method), budget=8)
        return timeless(collect(run(model, networks.get(method.network), request)))

    model = toy_model()
    networks = toy_networks(model)
    shared = [answer(model, networks, prompt) for prompt in PROMPTS]
    assert shared == [answer(fresh := toy_model(), toy_networks(fresh), prompt) for prompt in PROMPTS]


@EVERY_METHOD
def test_the_same_seed_gives_the_same_trace(method: Method, model: Model, networks: dict[str, Network]) -> None:
    shapes = next((k.choices for k in method.knobs if k.choices), ("",))
    for shape in shapes:
        knobs = modest(method) | ({"shape": shape} if shape else {})

        def sample(seed: int, knobs: Knobs = knobs) -> list[Step]:
            sampling = Sampling(temperature=1.0, seed=seed)
            request = Request(method, Prompt("", PROMPTS[1], "ids"), knobs, sampling, budget=6)
            return timeless(collect(run(model, networks.get(method.network), request)))

        assert sample(4) == sample(4)
        texts = {tuple(t for step in sample(seed) for t in step.committed) for seed in (4, 5)}
        assert len(texts) == 2, "temperature 1 must not be greedy in disguise"


# Time


@EVERY_METHOD
def test_the_passes_of_a_step_cover_it_without_gap(
    method: Method, model: Model, networks: dict[str, Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that ticks once per look, no pass overlaps another and no two are more than a look apart."""
    ticks = count()
    monkeypatch.setattr(contract, "time", SimpleNamespace(perf_counter=lambda: next(ticks) / 1000))

    def slowly(tree: DraftTree) -> list[int]:
        for _ in range(50):
            next(ticks)
        return tree.tokens

    drafter = Warped(build(method, model, networks, modest(method), Sampling()), slowly)
    played = play(model, drafter, Plan(PROMPTS[0], 8, LONG))
    for step in played.steps:
        slow = 50 if step is not played.steps[0] else 0  # work between two passes is the host's
        assert sum(p.ms for p in step.passes if p.kind == "host") >= slow
        ends = [0.0, *(p.start_ms + p.ms for p in step.passes)]
        gaps = [p.start_ms - end for p, end in zip(step.passes, ends, strict=False)]
        assert all(-1e-9 <= gap <= 1 + 1e-9 for gap in gaps), gaps
        kinds = [p.kind for p in step.passes]
        assert (kinds[-1], kinds.count("target")) == ("record", 1)
        record = sum(p.ms for p in step.passes if p.kind == "record")
        assert record > 0
        assert step.ms == pytest.approx(ends[-1] - record - sum(gaps))


def test_target_passes_say_how_many_rows_went_in(model: Model, full: list[int]) -> None:
    played = play(model, mirror(full, 5, 2, VOCAB), Plan(PROMPTS[1], 9, LONG))
    rows = [next(p.rows for p in step.passes if p.kind == "target") for step in played.steps]
    assert rows == [7] + [6] * (len(rows) - 1)


# The real target


@pytest.fixture(scope="module", params=["fp32", "fewbits"])
def smollm(request: pytest.FixtureRequest) -> Model:
    """Its weights read in float32, and in the bits they were published with."""
    return load_target(dtype=request.param)


@pytest.fixture(scope="module")
def questions(smollm: Model) -> list[tuple[Prompt, Trace]]:
    """Two prompts with plain decoding's traces."""
    prompts = [chat_prompt(smollm, text) for text in ("Name three fruits.", "Count from one to ten, one per line.")]
    plain = discover()["plain"]
    return [(p, collect(run(smollm, None, Request(plain, p, {}, budget=24)))) for p in prompts]


def same_or_near_tie(trace: Trace, plain: Trace) -> None:
    where = difference(trace, plain)
    assert where is None or where.gap <= NEAR_TIE, f"parts from plain decoding at {where}"


@pytest.mark.parametrize("method", [m for m in METHODS if m.key != "plain"], ids=lambda method: method.key)
def test_smollm2_says_the_same_with_every_drafter(
    method: Method, smollm: Model, questions: list[tuple[Prompt, Trace]]
) -> None:
    source = smollm.drafters.get(method.network, "")
    if method.network and not (BUNDLED / source.removeprefix("bundled:") / "model.safetensors").exists():
        pytest.skip(f"no weights are bundled for {method.title} yet")
    network = network_for(smollm, method)
    for prompt, plain in questions:
        same_or_near_tie(collect(run(smollm, network, Request(method, prompt, modest(method, 6), budget=24))), plain)


@pytest.mark.parametrize("good", [2, 6])
def test_smollm2_says_the_same_with_a_mirror(good: int, smollm: Model, questions: list[tuple[Prompt, Trace]]) -> None:
    prompt, plain = questions[1]
    known = [*prompt.ids, *ids(plain)]
    drafter = mirror(known, 6, good, smollm.decoder.config.vocab)
    played = play(smollm, drafter, Plan(prompt.ids, 24, 8192, smollm.stops))
    same_or_near_tie(Trace(plain.header, played.steps), plain)
    assert accepted(played.steps[1]) == good


@pytest.mark.parametrize("long", [1, 2, 40])
@pytest.mark.parametrize("method", [m for m in discover().values() if m.network], ids=lambda m: m.key)
def test_a_drafter_reads_the_prompt_in_the_prefill(
    method: Method, long: int, model: Model, networks: dict[str, Network]
) -> None:
    """All of it but its last token, whose row waits for what comes behind; decoding has no prompt to pay for."""
    prompt = Prompt("", [3 + i for i in range(long)], "ids")
    trace = collect(run(model, networks[method.network], Request(method, prompt, {}, budget=8)))
    drafts = [[one.rows for one in step.passes if one.kind == "draft"] for step in trace.steps]
    block = int(trace.header.knobs["block"]) if "block" in trace.header.knobs else 0
    assert drafts[0] == [long - 1] * (long > 1)
    assert drafts[1][0] == 1 + block
    assert all(rows[0] == len(trace.steps[i].committed) + block for i, rows in enumerate(drafts[1:]))
