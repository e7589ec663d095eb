"""Passes in fixed shapes give what passes of any shape give. What is played back here is the pass itself: no GPU."""

import gc
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models import graphs
from models.heads import Eagle3Head
from models.load import Model, Network
from spec_core import playback
from spec_core.contract import Clock, Method
from spec_core.measure import Plan, Subject, measure
from spec_core.measure import collect as collect_parts
from spec_core.methods import discover
from spec_core.run import Request, collect, run
from spec_core.target import CachedTarget
from spec_core.trace import DraftTree, KnobValue, Prompt, Sampling, Trace, ids
from tests.toy import toy_model, toy_networks

METHODS = list(discover().values())
PLAN = Plan(lengths=(1, 4), contexts=(8,), rounds=1)


class Tape:
    """Stands for a graph: the same work, on tensors of its own that every playing fills anew."""

    shapes: list[tuple[int, int]] = []  # rows and span of every pass of the target; other passes have other inputs
    others = 0

    def __init__(self, work: graphs.Work, inputs: Sequence[Tensor]):
        self.work, self.inputs = work, [one.clone() for one in inputs]
        if len(inputs) == len(("ids", "positions", "places", "sees")):
            Tape.shapes.append((inputs[3].shape[0], inputs[3].shape[1]))
        else:
            Tape.others += 1

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        for mine, new in zip(self.inputs, inputs, strict=True):
            mine.copy_(new)
        return self.work(*self.inputs)


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    Tape.shapes, Tape.others = [], 0
    monkeypatch.setattr(graphs, "asked", lambda device: True)
    monkeypatch.setattr(playback, "asked", lambda device: True)
    monkeypatch.setattr(graphs.Graphs.__init__, "__defaults__", (Tape,))


@pytest.fixture(scope="module")
def model() -> Model:
    return toy_model()


@pytest.fixture(scope="module")
def networks(model: Model) -> dict[str, Network]:
    return toy_networks(model)


def decode(model: Model, network: Network | None, method: Method, long: int, **knobs: KnobValue) -> Trace:
    """At most three levels deep: a random head that feeds on its own output blows up what rounding does."""
    if any(knob.name == "depth" for knob in method.knobs):
        knobs = {"depth": 3, **knobs}
    prompt = Prompt("", [3 + i % 40 for i in range(long)], "ids")
    return collect(run(model, network, Request(method, prompt, knobs, Sampling(), budget=40)))


def text(model: Model, network: Network | None, method: Method, long: int) -> list[int]:
    return ids(decode(model, network, method, long))


def guesses(tree: DraftTree) -> dict[tuple[int, ...], float]:
    """Every node by the words that lead to it, with its q."""
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return dict(zip(paths, tree.probs, strict=True))


def same_drafts(one: Trace, other: Trace) -> None:
    """Guess for guess, since a text that is checked says nothing about them; rounding may swap a last place or two."""
    for a, b in zip(one.steps, other.steps, strict=True):
        mine, wanted = guesses(a.draft), guesses(b.draft)
        common = mine.keys() & wanted.keys()
        assert len(common) >= 0.9 * max(len(mine), len(wanted))
        assert [mine[path] for path in common] == pytest.approx([wanted[path] for path in common], abs=1e-3)


def forget(model: Model, networks: dict[str, Network]) -> None:
    """What other runs left."""
    for owner in (model.decoder, *(network.module for network in networks.values())):
        owner.__dict__.pop("resting", None)


@pytest.mark.parametrize("first", [1024, 16], ids=["roomy", "the cache moves on the way"])
@pytest.mark.parametrize("long", [1, 9, 250])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.key)
def test_text_and_drafts_are_those_of_free_passes(
    method: Method,
    long: int,
    first: int,
    model: Model,
    networks: dict[str, Network],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the visible cache grows by another span on the way."""
    network = networks.get(method.network)
    want = decode(model, network, method, long)
    request.getfixturevalue("fixed")
    monkeypatch.setattr(playback, "FIRST", first)
    forget(model, networks)
    found = decode(model, network, method, long)
    assert ids(found) == ids(want)
    same_drafts(found, want)
    assert Tape.shapes
    assert bool(Tape.others) == (network is not None)
    assert all(rows in graphs.ROWS for rows, _ in Tape.shapes)
    assert len(set(Tape.shapes)) == len(Tape.shapes) <= 12  # captured once, however many steps there were


CHAINS = [(method, {"shape": "chain"}) for method in METHODS if any(k.name == "shape" for k in method.knobs)]
BLOCKS = [(method, {"layers": 1}) for method in METHODS if any(k.name == "layers" for k in method.knobs)]


@pytest.mark.parametrize(("method", "knobs"), CHAINS + BLOCKS, ids=str)
def test_so_are_other_shapes_of_drafts(
    method: Method,
    knobs: dict[str, KnobValue],
    model: Model,
    networks: dict[str, Network],
    request: pytest.FixtureRequest,
) -> None:
    want = decode(model, networks[method.network], method, 30, **knobs)
    request.getfixturevalue("fixed")
    forget(model, networks)
    whole = decode(model, networks[method.network], method, 30)  # its graphs must not be taken for the other's
    assert ids(whole) == ids(want)
    same_drafts(decode(model, networks[method.network], method, 30, **knobs), want)


def test_what_was_captured_serves_later_runs(fixed: None) -> None:
    model = toy_model()
    networks = toy_networks(model)
    for method in METHODS:
        network = networks.get(method.network)
        first = decode(model, network, method, 9)
        made = len(Tape.shapes), Tape.others
        again = decode(model, network, method, 9)
        assert ids(again) == ids(first)
        same_drafts(again, first)
        assert (len(Tape.shapes), Tape.others) == made


def test_capturing_is_no_decoding(fixed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step captures; what that takes is booked as recording, and every pass is counted once."""
    prepare = graphs.Graphs.prepare

    def slowly(play: graphs.Graphs, *given: Any) -> None:
        time.sleep(0.2)
        prepare(play, *given)

    monkeypatch.setattr(graphs.Graphs, "prepare", slowly)
    model = toy_model()
    trace = decode(model, toy_networks(model)["eagle3"], discover()["eagle3"], 9, shape="chain", depth=3)
    for step in trace.steps[1:]:
        kinds = [one.kind for one in step.passes]
        assert [kinds.count(kind) for kind in ("draft", "head", "target")] == [3, 3, 1]
    first = trace.steps[1]
    assert sum(one.ms for one in first.passes if one.kind == "record") > 400
    assert first.ms < 200


def test_a_head_with_a_window_drafts_the_same(model: Model, request: pytest.FixtureRequest) -> None:
    """It reads places in the cache as distances, so its passes run launch by launch."""
    networks = toy_networks(model)
    network, method = networks["eagle3"], discover()["eagle3"]
    assert isinstance(network.module, Eagle3Head)
    network.module.config = replace(network.module.config, window=8)
    want = decode(model, network, method, 30)
    request.getfixturevalue("fixed")
    same_drafts(decode(model, network, method, 30), want)


def test_the_latency_lab_plays_graphs_too(fixed: None) -> None:
    """Drafts of one network share its cache, and so its graphs; times are of playing, not of capturing."""
    model = toy_model()
    networks = toy_networks(model)
    found = collect_parts(measure(Subject(model, networks, frozenset(), model.decoder.config.layers), PLAN))
    assert Tape.others
    rows = [task.length for task in found.points if task.form == "target"]
    assert len(rows) == len(Tape.shapes)
    assert all(set(point.split) <= {"draft", "head", "target", "host"} for point in found.points.values())


def refuses(work: graphs.Work, inputs: Sequence[Tensor]) -> graphs.Work:
    raise RuntimeError("operation not permitted when stream is capturing")


def lies(work: graphs.Work, inputs: Sequence[Tensor]) -> graphs.Work:
    return lambda *inputs: tuple(one + 1 for one in work(*inputs))


@pytest.mark.parametrize("capture", [refuses, lies])
def test_without_a_graph_the_pass_runs_as_it_is(capture, capsys: pytest.CaptureFixture[str]) -> None:
    play = graphs.Graphs(capture)
    x = torch.ones(1, 4)
    play.prepare("double", lambda x: (2 * x,), [x])
    for _ in range(2):
        assert torch.equal(play("double", [x])[0], 2 * x)
    assert capsys.readouterr().err.count("runs without a graph") == 1


def test_what_rests_goes_with_its_decoder(fixed: None) -> None:
    model = toy_model()
    text(model, None, discover()["plain"], 9)
    ((resting,),) = model.decoder.__dict__["resting"].values()
    seen = weakref.ref(resting.keys)
    del resting, model
    gc.collect()
    assert seen() is None


def test_a_draft_beyond_the_largest_shape_is_scored_all_the_same(fixed: None) -> None:
    model, most = toy_model(), graphs.ROWS[-1]
    target = CachedTarget(model, (), 600)
    target.prefill([3, 4], Clock())
    wide = star(most)
    assert target.score(wide, Clock()).logits.shape[0] == most + 1
    assert [rows for rows, _ in Tape.shapes] == [2]  # the prompt's
    target.commit([0])
    assert target.score(star(3), Clock()).logits.shape[0] == 4
    assert [rows for rows, _ in Tape.shapes] == [2, 4]


def star(leaves: int) -> DraftTree:
    """A root with that many children, all kept."""
    tokens, parents = [5, *[6] * leaves], [-1, *[0] * leaves]
    ones = [1.0] * (leaves + 1)
    return DraftTree(tokens, parents, [-1, *[0] * leaves], ones, [True] * (leaves + 1), list(range(leaves + 1)))


def test_only_a_gpu_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not graphs.asked(torch.device("cuda"))
    monkeypatch.setenv("DRAFTSCOPE_GRAPHS", "1")
    assert graphs.asked(torch.device("cuda"))
    assert not graphs.asked(torch.device("cpu"))
