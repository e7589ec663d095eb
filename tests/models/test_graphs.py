"""Passes in fixed shapes give what passes of any shape give. What is played back here is the pass itself: no GPU."""

import gc
import weakref
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from models import graphs
from models.load import Model, Network
from spec_core.contract import Clock, Method
from spec_core.methods import discover
from spec_core.run import Request, collect, run
from spec_core.target import CachedTarget
from spec_core.trace import DraftTree, Prompt, Sampling, ids
from tests.toy import toy_model, toy_networks

METHODS = list(discover().values())


class Tape:
    """Stands for a graph: the same work, on tensors of its own that every playing fills anew."""

    shapes: list[tuple[int, int]] = []

    def __init__(self, work: graphs.Work, inputs: Sequence[Tensor]):
        self.work, self.inputs = work, [one.clone() for one in inputs]
        Tape.shapes.append((inputs[3].shape[0], inputs[3].shape[1]))

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        for mine, new in zip(self.inputs, inputs, strict=True):
            mine.copy_(new)
        return self.work(*self.inputs)


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    Tape.shapes = []
    monkeypatch.setattr(graphs, "asked", lambda device: True)
    monkeypatch.setattr(graphs.Graphs.__init__, "__defaults__", (Tape,))


@pytest.fixture(scope="module")
def model() -> Model:
    return toy_model()


@pytest.fixture(scope="module")
def networks(model: Model) -> dict[str, Network]:
    return toy_networks(model)


def text(model: Model, network: Network | None, method: Method, long: int) -> list[int]:
    prompt = Prompt("", [3 + i % 40 for i in range(long)], "ids")
    return ids(collect(run(model, network, Request(method, prompt, {}, Sampling(), budget=40))))


@pytest.mark.parametrize("long", [1, 9, 250])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.key)
def test_the_text_is_plain_decodings(
    method: Method, long: int, model: Model, networks: dict[str, Network], request: pytest.FixtureRequest
) -> None:
    """Also where the visible cache grows by another span on the way."""
    want = text(model, None, discover()["plain"], long)
    request.getfixturevalue("fixed")
    model.decoder.__dict__.pop("resting", None)  # what other methods left
    assert text(model, networks.get(method.network), method, long) == want
    assert Tape.shapes
    assert all(rows in graphs.ROWS for rows, _ in Tape.shapes)
    assert len(set(Tape.shapes)) == len(Tape.shapes) <= 12  # captured once, however many steps there were


def test_what_was_captured_serves_later_runs(fixed: None, networks: dict[str, Network]) -> None:
    model, plain = toy_model(), discover()["plain"]
    first = text(model, None, plain, 9)
    made = len(Tape.shapes)
    assert text(model, None, plain, 9) == first
    assert len(Tape.shapes) == made


def refuses(work: graphs.Work, inputs: Sequence[Tensor]) -> graphs.Work:
    raise RuntimeError("operation not permitted when stream is capturing")


def lies(work: graphs.Work, inputs: Sequence[Tensor]) -> graphs.Work:
    return lambda *inputs: tuple(one + 1 for one in work(*inputs))


@pytest.mark.parametrize("capture", [refuses, lies])
def test_without_a_graph_the_pass_runs_as_it_is(capture, capsys: pytest.CaptureFixture[str]) -> None:
    play = graphs.Graphs(capture)
    x = torch.ones(1, 4)
    play.prepare(lambda x: (2 * x,), [x])
    for _ in range(2):
        assert torch.equal(play([x])[0], 2 * x)
    assert capsys.readouterr().err.count("runs without a graph") == 1


def test_what_rests_goes_with_its_decoder(fixed: None) -> None:
    model = toy_model()
    text(model, None, discover()["plain"], 9)
    (resting,) = model.decoder.__dict__["resting"]
    seen = weakref.ref(resting.cache.keys)
    del resting, model
    gc.collect()
    assert seen() is None


def test_a_draft_beyond_the_largest_shape_is_scored_all_the_same(fixed: None) -> None:
    model, most = toy_model(), graphs.ROWS[-1]
    target = CachedTarget(model, (), 600)
    target.prefill([3, 4], Clock())
    wide = star(most)
    assert target.score(wide, Clock()).logits.shape[0] == most + 1
    assert not Tape.shapes
    target.commit([0])
    assert target.score(star(3), Clock()).logits.shape[0] == 4
    assert [rows for rows, _ in Tape.shapes] == [4]


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
