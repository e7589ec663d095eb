"""The sampling experiment on a toy pair: its short cuts change nothing, and what it counts is the target's law."""

import itertools
from pathlib import Path

import pytest
import torch

from models.load import Model, Network
from spec_core import experiment
from spec_core.command import Ready
from spec_core.contract import Clock
from spec_core.draws import load, verdict
from spec_core.experiment import Answers, Way, draw, expected, ways
from spec_core.methods import discover
from spec_core.target import CachedTarget
from spec_core.trace import DraftTree
from spec_core.tree import chain
from tests.toy import toy_model, toy_networks

BEFORE, ROOT, DRAWS = [5, 9, 3, 7], 11, 300


@pytest.fixture(scope="module")
def flat() -> Model:
    """A target that is unsure, so that every draw has a say."""
    model = toy_model(3, 10)
    model.decoder.lm_head.weight.mul_(0.4)
    model.decoder.lm_head.speed_up()
    return model


@pytest.fixture(scope="module")
def ready(flat: Model) -> list[Ready]:
    nets: dict[str, Network] = toy_networks(flat, 2)
    return [Ready(method, nets.get(method.network)) for method in discover().values()]


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


def answers(model: Model, layers: tuple[int, ...] = ()) -> Answers:
    return Answers(model, layers, [t % 10 for t in BEFORE], ROOT % 10)


def test_a_remembered_answer_is_the_targets_own(flat: Model) -> None:
    known = answers(flat, (0, 2))
    target = CachedTarget(flat, (0, 2), 40)
    target.prefill(known.before, Clock())
    for token in range(3):
        own = target.score(chain(known.root, [token], [1.0], [0]), Clock())
        target.cache.crop(len(known.before))
        for row, path in enumerate(((known.root,), (known.root, token))):
            logits, features = known.at(path)
            assert torch.allclose(logits, own.logits[row], atol=1e-4)
            assert torch.allclose(features, own.features[row], atol=1e-4)


def test_paths_lead_from_the_root() -> None:
    tree = DraftTree([1, 2, 3, 4], [-1, 0, 1, 0], [-1, 0, 1, 0], [1.0] * 4, [True] * 4, [0, 1, 2, 3])
    assert experiment.paths(tree) == [(1,), (1, 2), (1, 2, 3), (1, 4)]


def test_expected_probabilities_are_products_of_the_targets_laws(flat: Model) -> None:
    known = answers(flat)
    continuations, law = expected(known, 10_000)
    assert law == sorted(law, reverse=True)
    assert 0.9 < sum(law) <= 1 + 1e-5
    for (first, second), p in itertools.islice(zip(continuations, law, strict=True), 5):
        own = known.law((known.root,))[first] * known.law((known.root, first))[second]
        assert p == pytest.approx(float(own), rel=1e-4)


def test_every_way_draws_the_targets_law_and_the_spoilt_ones_do_not(flat: Model, ready: list[Ready]) -> None:
    found = ways(ready, "cpu")
    assert {way.wrong for way in found} == {"", *experiment.LIES}
    for place, way in enumerate(found):
        layers = tuple(way.drafter(flat, experiment.Sampling(1.0), {}).layers)
        known = answers(flat, layers)
        continuations, law = expected(known, DRAWS)
        arm = draw(known, way, DRAWS, place * DRAWS).arm(way, continuations)
        assert sum(arm.counts) == DRAWS
        fits = verdict(arm.counts, [*law, max(0.0, 1 - sum(law))]).fits
        assert fits or way.wrong, (way.ready.method.key, way.knobs)
        assert not fits or way.wrong != "argmax"


def test_a_recalled_draft_is_drawn_once(flat: Model, ready: list[Ready]) -> None:
    way = Way(next(one for one in ready if one.method.key == "dflash"), {})
    known: dict[tuple[int, ...], object] = {}
    first = way.drafter(flat, experiment.Sampling(1.0), known)  # type: ignore[arg-type]
    scores = answers(flat, tuple(first.layers)).beginning()
    first.observe([5, 9, 3, 7], scores.features, Clock())
    made = first.propose(1, torch.Generator(), Clock())
    second = way.drafter(flat, experiment.Sampling(1.0), known)  # type: ignore[arg-type]
    second.observe([5, 9, 3, 7], scores.features, Clock())
    assert second.propose(1, torch.Generator(), Clock()) is made


def test_the_command_writes_what_it_counted(toy_target: str, tmp_path: Path) -> None:
    path = tmp_path / "draws.json"
    experiment.command(["--target", toy_target, "--after", "2", "--draws", "20", "--json", str(path)])
    found = load(path)
    assert found.draws == 20
    (one,) = found.spots
    assert len(one.before) == 2
    assert {sum(arm.counts) for arm in one.arms} == {20}
    assert {arm.method for arm in one.arms} == set(discover())
