"""From a request to a trace: what cannot run says why, what ran says everything, and a trace is its own proof."""

import dataclasses
import random

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from models.decoder import ConfigError
from models.heads import DFlashHead
from models.load import Model, Network
from spec_core.contract import Clock, Knob, KnobError, Method
from spec_core.methods import discover, find
from spec_core.methods.lookup import LookupDrafter
from spec_core.run import Request, RequestError, chat_prompt, collect, network_for, raw_prompt, run
from spec_core.target import CachedTarget
from spec_core.trace import (
    Decision,
    DraftTree,
    KnobValue,
    Prompt,
    Sampling,
    Step,
    Trace,
    decode_line,
    encode,
    ids,
    text,
    words,
)
from tests.core.drafters import build, modest
from tests.toy import talking_model, toy_networks

Knobs = dict[str, KnobValue]
METHODS = list(discover().values())
EVERY_METHOD = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.key)


@pytest.fixture(scope="module")
def talking() -> Model:
    return talking_model()


@pytest.fixture(scope="module")
def partners(talking: Model) -> dict[str, Network]:
    return toy_networks(talking)


def request(key: str = "plain", prompt: list[int] | None = None, knobs: Knobs | None = None, **rest: int) -> Request:
    given = Prompt("", [5, 6, 7] if prompt is None else prompt, "ids")
    return Request(find(key), given, knobs or {}, budget=rest.get("budget", 6), limit=rest.get("limit", 0))


def traced(model: Model, networks: dict[str, Network], asked: Request) -> Trace:
    return collect(run(model, networks.get(asked.method.network), asked))


# What cannot run


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (request(prompt=[]), "The prompt is empty"),
        (request(prompt=[1] * 512), "The prompt has 512 tokens and the context holds 512"),
        (request(prompt=[1] * 20, limit=20), "The prompt has 20 tokens and the context holds 20"),
        (request(prompt=[1, 64]), "ids run from 0 to 63"),
        (request(prompt=[-1]), "ids run from 0 to 63"),
        (request(budget=0), "at least one new token"),
        (dataclasses.replace(request(), sampling=Sampling(-0.1)), "temperature must be 0 or from"),
        (dataclasses.replace(request(), sampling=Sampling(1e-30)), "temperature must be 0 or from 0.001 on"),
        (dataclasses.replace(request(), sampling=Sampling(float("nan"))), "temperature must be 0 or from"),
        (dataclasses.replace(request(), sampling=Sampling(float("inf"))), "temperature must be 0 or from"),
        (dataclasses.replace(request(), sampling=Sampling(1.0, 0.0)), "top-p above 0 and at most 1"),
        (dataclasses.replace(request(), sampling=Sampling(1.0, 1.5)), "top-p above 0 and at most 1"),
    ],
)
def test_a_run_that_cannot_start_says_what_to_change(asked: Request, message: str, model: Model) -> None:
    with pytest.raises(RequestError, match=message):
        next(run(model, None, asked))


@pytest.mark.parametrize(
    ("key", "knobs", "message"),
    [
        ("plain", {"depth": 3}, "Plain decoding has no knob 'depth'; it has: none"),
        ("lookup", {"size": 3}, "Prompt lookup has no knob 'size'; it has: ngram, tokens"),
        ("lookup", {"tokens": 0}, "tokens=0: give a whole number from 1 to 64"),
        ("lookup", {"tokens": "many"}, "tokens='many': give a whole number from 1 to 64"),
        ("lookup", {"tokens": "2.5"}, "tokens='2.5': give a whole number from 1 to 64"),
        ("eagle2", {"shape": "bush"}, "shape=bush: give one of tree, chain, sampled"),
        ("dflash", {"block": 1}, "block=1: give a whole number from 2 to 32"),
        ("dflash", {"guesses": "perhaps"}, "guesses='perhaps': give true or false"),
    ],
)
def test_a_wrong_knob_lists_what_would_do(
    key: str, knobs: Knobs, message: str, model: Model, networks: dict[str, Network]
) -> None:
    asked = request(key, knobs=knobs)
    with pytest.raises(KnobError) as caught:
        next(run(model, networks.get(asked.method.network), asked))
    assert str(caught.value) == message


def test_an_unknown_method_lists_the_known() -> None:
    with pytest.raises(KnobError, match=f"no method 'egle': choose one of {', '.join(discover())}"):
        find("egle")


def test_text_needs_letters_and_a_tokenizer(model: Model, talking: Model) -> None:
    for empty in ("", "   \n"):
        with pytest.raises(RequestError, match="The prompt is empty"):
            chat_prompt(talking, empty)
    with pytest.raises(RequestError, match="The prompt is empty"):
        raw_prompt(talking, "")
    for make in (chat_prompt, raw_prompt):
        with pytest.raises(RequestError, match="no tokenizer"):
            make(model, "hello")


def test_a_missing_drafter_names_method_and_target(model: Model) -> None:
    with pytest.raises(RequestError, match="No DFlash drafter is known for toy"):
        network_for(model, find("dflash"))
    assert network_for(model, find("lookup")) is None


def test_weights_of_another_kind_are_refused(model: Model, networks: dict[str, Network]) -> None:
    with pytest.raises(RequestError, match="needs eagle3 weights, and was given eagle"):
        next(run(model, networks["eagle"], request("eagle3")))


def test_a_method_without_drafter_takes_none(model: Model, networks: dict[str, Network]) -> None:
    with pytest.raises(RequestError, match="takes no drafter"):
        next(run(model, networks["dflash"], request("plain")))


def test_a_run_called_off_ends_as_cancelled(model: Model) -> None:
    answers = iter([False, False, False, True])
    trace = collect(run(model, None, request(), lambda: next(answers)))
    assert trace.end is not None
    assert (trace.end.reason, trace.end.steps, trace.end.tokens) == ("cancelled", 3, 3)
    assert ids(trace) == ids(collect(run(model, None, request(budget=10))))[:3]


# What the header says


@EVERY_METHOD
def test_the_header_tells_how_the_run_came_to_be(method: Method, model: Model, networks: dict[str, Network]) -> None:
    network = networks.get(method.network)
    asked = Request(method, Prompt("p", [5, 6], "ids"), modest(method), Sampling(0.5, 0.9, 3), 2, 100)
    head = collect(run(model, network, asked)).header
    assert (head.method, head.prompt, head.sampling) == (method.card, asked.prompt, asked.sampling)
    assert (head.budget, head.context_limit, head.stops, head.dtype) == (2, 100, [], "float32")
    assert head.knobs == method.settle(modest(method))
    assert (head.target.id, head.target.layers, head.target.hidden, head.target.vocab) == ("toy", 4, 32, 64)
    assert (head.drafter is None) == (network is None)
    if head.drafter and network:
        assert (head.drafter.id, head.drafter.hash, head.drafter.layers) == (network.id, network.hash, network.layers)
        assert head.drafter.vocab == (network.head_rows or 64)
        taps, own = list(network.module.config.feature_layers), bool(network.head_rows)
        assert (head.drafter.taps, head.drafter.own_head) == (taps, own)
        assert taps
    assert head.device
    assert head.threads == torch.get_num_threads()
    assert set(head.versions) == {"python", "torch"}


def other(knob: Knob) -> KnobValue:
    """A value that is not the published one."""
    if isinstance(knob.published, bool):
        return not knob.published
    return knob.choices[-1] if knob.choices else knob.low or 1


ALL_KNOBS = [pytest.param(m, k, id=f"{m.key}-{k.name}") for m in METHODS for k in m.knobs]
REPEATING = [5, 2, 7, 1, 2, 9, 1, 2]  # (1, 2) went on with 9 before, 2 alone with 7


@EVERY_METHOD
def test_tokens_the_drafter_has_no_word_for_are_named(
    method: Method, model: Model, networks: dict[str, Network]
) -> None:
    network = networks.get(method.network)
    trace = collect(run(model, network, Request(method, Prompt("p", [5, 6], "ids"), modest(method), budget=24)))
    words = network.words if network else None
    outside = [token for token in ids(trace) if words is not None and token not in words]
    assert [token for step in trace.steps for token in step.beyond] == outside
    drafted = {token for step in trace.steps for token in step.draft.tokens[1:]}
    assert not drafted & set(outside)
    assert bool(outside) == (words is not None)  # this text has such tokens


@pytest.mark.parametrize("key", ["dflash", "ddtree"])
def test_a_block_of_few_words_names_what_it_cannot_say_too(
    key: str, model: Model, networks: dict[str, Network]
) -> None:
    """As in the files of speculators, which give DFlash a vocabulary of its own."""
    full = networks["dflash"].module
    assert isinstance(full, DFlashHead)
    few = DFlashHead(dataclasses.replace(full.config, draft_vocab=16))
    few.load_state_dict(full.state_dict(), strict=False)
    few.d2t = torch.arange(0, 64, 4) - torch.arange(16)
    network = Network(few.requires_grad_(False), "few", "few0")
    assert network.words == frozenset(range(0, 64, 4))
    trace = collect(run(model, network, Request(find(key), Prompt("p", [5, 6], "ids"), modest(find(key)), budget=24)))
    outside = [token for token in ids(trace) if token % 4]
    assert outside
    assert [token for step in trace.steps for token in step.beyond] == outside


@pytest.mark.parametrize(("method", "knob"), ALL_KNOBS)
def test_every_knob_reaches_the_header_and_the_draft(
    method: Method, knob: Knob, model: Model, networks: dict[str, Network]
) -> None:
    """A flag that is read and forgotten would leave both as they were."""

    def made(value: KnobValue) -> tuple[KnobValue, DraftTree]:
        knobs = modest(method) | {knob.name: value}
        drafter = build(method, model, networks, knobs, Sampling(1.0))
        features = CachedTarget(model, drafter.layers, 64).prefill(REPEATING[:-1], Clock()).features
        drafter.observe(REPEATING[:-1], features, Clock())
        asked = Request(method, Prompt("", REPEATING, "ids"), knobs, budget=1)
        head = collect(run(model, networks.get(method.network), asked)).header
        return head.knobs[knob.name], drafter.propose(REPEATING[-1], torch.Generator().manual_seed(0), Clock()).tree

    published, tree = made(modest(method).get(knob.name, knob.published))
    changed, another = made(other(knob))
    assert (published, changed) == (modest(method).get(knob.name, knob.published), other(knob))
    assert tree != another


# What a trace says


def sampled(method: Method, shape: str = "", temperature: float = 1.0) -> Request:
    knobs = modest(method) | ({"shape": shape} if shape else {})
    return Request(method, Prompt("", [9, 40, 9, 40, 57], "ids"), knobs, Sampling(temperature, 0.95, 2), 10)


@EVERY_METHOD
def test_words_cover_every_id_a_trace_names(method: Method, talking: Model, partners: dict[str, Network]) -> None:
    knobs = modest(method) | ({"guesses": True} if "guesses" in method.published else {})
    prompt = chat_prompt(talking, "Zoë 🦊")
    trace = traced(talking, partners, Request(method, prompt, knobs, budget=8))
    known = set(trace.header.words)
    for step in trace.steps:
        known |= set(step.words)
        tree, verdict = step.draft, step.verdict
        named = {*tree.tokens, *step.committed, verdict.bonus, *(t for row in tree.layers for t in row)}
        named |= {t for lost in tree.others for t in lost.tokens} | {t for w in verdict.wanted for t in w.tokens}
        assert named | {d.drawn for d in verdict.decisions if d.drawn is not None} <= known
    assert set(prompt.ids) <= set(trace.header.words)
    assert talking.tokenizer is not None
    assert text(trace) == talking.tokenizer.text(ids(trace))
    sizes = [len(step.words) for step in trace.steps]
    assert sum(sizes) + len(trace.header.words) == len(words(trace)), "no word is told twice"


SHAPES = [
    pytest.param(m, shape, id=f"{m.key}-{shape}")
    for m in METHODS
    for shape in [s for k in m.knobs for s in k.choices] or [""]
]


@pytest.mark.parametrize(("method", "shape"), SHAPES)
def test_decisions_can_be_checked_from_the_recorded_trace(
    method: Method, shape: str, model: Model, networks: dict[str, Network]
) -> None:
    trace = traced(model, networks, sampled(method, shape))
    rules = set()
    for part in trace.steps:
        step = decode_line(encode(part))
        assert isinstance(step, Step)
        assert step == part
        for d in step.verdict.decisions:
            rules.add(d.rule)
            check_decision(d, step)
        held = [d.child for d in step.verdict.decisions if d.accepted]
        assert step.verdict.path == [0, *held]
    assert ("reject" in rules) == (shape == "sampled")


def check_decision(d: Decision, step: Step) -> None:
    tree, verdict = step.draft, step.verdict
    if d.rule == "reject":
        assert d.u is not None
        assert d.accepted == (d.u * d.q < d.p)
    elif d.child >= 0:
        assert d.accepted == (d.drawn == tree.tokens[d.child])
    else:
        below = [tree.tokens[i] for i in tree.kept if tree.parents[i] == d.node]
        assert d.drawn == verdict.bonus
        assert d.drawn not in below
        assert not d.accepted
    if d.child >= 0:
        assert tree.parents[d.child] == d.node
        assert d.p == pytest.approx(verdict.p[tree.kept.index(d.child)], rel=1e-4, abs=1e-9)
        assert d.q == pytest.approx(tree.probs[d.child], rel=1e-4, abs=1e-9)


@EVERY_METHOD
def test_the_end_adds_the_run_up(method: Method, model: Model, networks: dict[str, Network]) -> None:
    trace = traced(model, networks, sampled(method))
    end = trace.end
    assert end is not None
    assert (end.reason, end.steps, end.tokens) == ("length", len(trace.steps), 10)
    assert end.tokens == len(ids(trace)) == sum(len(step.committed) for step in trace.steps)
    assert end.ms == pytest.approx(sum(step.ms for step in trace.steps), abs=1e-2)
    assert end.peak_memory_mb > 0


def test_what_the_target_wanted_is_shown_along_the_path_and_beside_it(
    model: Model, networks: dict[str, Network]
) -> None:
    for step in traced(model, networks, sampled(find("eagle2"))).steps:
        tree, on = step.draft, set(step.verdict.path)
        assert [w.node for w in step.verdict.wanted] == [i for i in tree.kept if i in on or tree.parents[i] in on]
        for wanted in step.verdict.wanted:
            assert wanted.probs == sorted(wanted.probs, reverse=True)
            assert sum(wanted.probs) + wanted.rest == pytest.approx(1, abs=1e-4)


# Prompt lookup


def copied(history: list[int], ngram: int = 3, tokens: int = 4) -> list[int]:
    """What lookup drafts behind a text that it saw in two parts."""
    drafter = LookupDrafter(ngram, tokens)
    for part in (history[:-1][:3], history[:-1][3:]):
        drafter.observe(part, torch.empty(len(part), 0), Clock())
    return drafter.propose(history[-1], torch.Generator(), Clock()).tree.tokens[1:]


@pytest.mark.parametrize(
    ("history", "ngram", "drafted"),
    [
        ([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3], 3, [9, 1, 2, 3]),  # the earliest run counts
        ([4, 3, 7, 1, 2, 3, 9, 5, 2, 3], 3, [9, 5, 2, 3]),  # no run of three: two will do
        ([4, 3, 7, 1, 2, 3, 9, 5, 2, 3], 1, [7, 1, 2, 3]),  # if only one token is asked for
        ([3, 7, 1, 3], 3, [7, 1, 3]),  # what follows may reach the root itself
        ([1, 2, 3, 4], 3, []),  # never found
        ([6, 6], 3, [6]),
        ([6, 6, 6, 6, 6], 3, [6, 6]),  # a run may overlap the one it is found by
        ([5], 3, []),  # one token is no history
    ],
)
def test_lookup_copies_what_followed_the_earliest_equal_run(history: list[int], ngram: int, drafted: list[int]) -> None:
    assert copied(history, ngram) == drafted


def test_lookup_against_the_slow_way() -> None:
    dice = random.Random(1)
    for _ in range(300):
        history = [dice.randrange(4) for _ in range(dice.randrange(1, 14))]
        n = len(history)
        expected: list[int] = []
        for size in range(min(3, n - 1), 0, -1):
            ends = [i + size for i in range(n - size) if history[i : i + size] == history[-size:]]
            if ends:
                expected = history[ends[0] : ends[0] + 4]
                break
        assert copied(history) == expected


def test_a_raw_prompt_begins_with_the_mark_its_model_always_sees() -> None:
    """Llama's beginning of text; a chat has it in its template."""
    model = talking_model()
    assert model.tokenizer
    assert raw_prompt(model, "Hi").ids == model.tokenizer.raw("Hi")
    hub = model.tokenizer.hub
    first = hub.convert_tokens_to_ids("<|endoftext|>")
    marked = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", first)])
    hub.backend_tokenizer.post_processor = marked  # type: ignore[attr-defined]
    assert raw_prompt(model, "Hi").ids == [first, *model.tokenizer.raw("Hi")]
    assert first not in chat_prompt(model, "Hi").ids


def test_a_target_without_a_chat_template_says_what_to_do() -> None:
    model = talking_model()
    assert model.tokenizer
    model.tokenizer.hub.chat_template = None
    with pytest.raises(ConfigError, match="no chat template: give the prompt as it is, with --raw"):
        chat_prompt(model, "Hi")
