"""EAGLE and EAGLE-3 training: what a row may see, which token it is judged by, and that drafting does the same."""

import pytest
import torch
from torch import Tensor

from models.cache import KVCache
from models.decoder import Decoder
from models.heads import new_cache
from models.load import Model
from spec_core.training import eagle, eagle3
from spec_core.training.data import Batch, Store
from spec_core.training.unroll import chain_hits, judged_rows, unroll, unrolled_mask

STEPS = 3


def build(kind: str, decoder: Decoder, store: Store) -> eagle.Task | eagle3.Task:
    torch.manual_seed(0)
    if kind == "eagle":
        return eagle.build(decoder, store, None)
    return eagle3.build(decoder, store, None, draft_vocab=48)


@pytest.fixture(params=["eagle", "eagle3"])
def task(request: pytest.FixtureRequest, model: Model, store: Store) -> eagle.Task | eagle3.Task:
    return build(request.param, model.decoder, store)


@pytest.fixture
def batch(task: eagle.Task | eagle3.Task, store: Store) -> Batch:
    return store.batch([0, 1], task.layers)


def hidden(task: eagle.Task | eagle3.Task, batch: Batch) -> Tensor:
    return batch.last if isinstance(task, eagle.Task) else task.network.rows(batch.features)


def outputs(task: eagle.Task | eagle3.Task, batch: Batch, rows: Tensor) -> list[Tensor]:
    return unroll(task.network.head, task.embed, batch, rows, STEPS)


def changed(before: list[Tensor], after: list[Tensor]) -> list[list[int]]:
    """Per step, the rows of the first dialogue whose output moved."""
    moved = [(a - b).abs().amax(-1)[0] > 1e-5 for a, b in zip(before, after, strict=True)]
    return [m.nonzero().flatten().tolist() for m in moved]


@torch.no_grad()
def test_a_row_sees_tokens_up_to_its_step_and_no_later_ones(task: eagle.Task | eagle3.Task, batch: Batch) -> None:
    rows = hidden(task, batch)
    before = outputs(task, batch, rows)
    batch.ids[0, 12] = (batch.ids[0, 12] + 1) % 60
    for step, moved in enumerate(changed(before, outputs(task, batch, rows))):
        assert min(moved) == 12 - step - 1


@torch.no_grad()
def test_a_row_sees_features_up_to_its_own(task: eagle.Task | eagle3.Task, batch: Batch) -> None:
    rows = hidden(task, batch)
    before = outputs(task, batch, rows)
    rows = rows.clone()
    rows[0, 12] += 1.0
    for moved in changed(before, outputs(task, batch, rows)):
        assert min(moved) == 12


@torch.no_grad()
def test_unrolled_steps_equal_drafting_with_a_cache(task: eagle.Task | eagle3.Task, batch: Batch) -> None:
    head, rows, i = task.network.head, hidden(task, batch)[:1], 10
    expected = outputs(task, batch, hidden(task, batch))
    cache: KVCache = new_cache(head, 64, rows)
    out = head(task.embed(batch.ids[:1, 1 : i + 2]), rows[:, : i + 1], torch.arange(i + 1)[None], cache)[:, -1:]
    for step in range(STEPS):
        torch.testing.assert_close(out[0, 0], expected[step][0, i], atol=1e-4, rtol=1e-4)
        token, place = batch.ids[:1, i + step + 2, None], torch.tensor([[i + step + 1]])
        out = head(task.embed(token), head.feedback(out), place, cache)


def test_the_mask_of_a_later_step_is_the_prefix_and_ones_own_row() -> None:
    mask = unrolled_mask(4, 2)
    assert mask.shape == (4, 12)
    assert mask[2].nonzero().flatten().tolist() == [0, 1, 2, 6, 10]


def test_what_is_judged_is_the_answer_and_nothing_else(store: Store) -> None:
    batch = store.batch([0], ())
    prompt, n = int(store.documents["prompt"][0]), batch.ids.shape[1]
    where, row = judged_rows(batch.choice >= 0, STEPS)
    assert row.tolist() == list(range(prompt - 1, n - 1))  # row t tells token t + 1
    assert torch.equal(batch.choice[where, row], batch.ids[where, row + 1])


def test_a_perfect_guesser_hits_always_and_a_late_one_never(store: Store) -> None:
    batch = store.batch([0, 1], ())
    perfect = [batch.ids.roll(-s - 2, 1)[..., None] for s in range(STEPS)]
    late = [batch.ids.roll(-s - 1, 1)[..., None] for s in range(STEPS)]
    assert chain_hits(batch, perfect, lambda out: out[:, 0]).all()
    assert chain_hits(batch, late, lambda out: out[:, 0]).float().mean() < 0.5


def test_a_choice_outside_the_draft_vocabulary_is_not_trained_on(model: Model, store: Store) -> None:
    torch.manual_seed(0)
    task = eagle3.build(model.decoder, store, None, draft_vocab=8)
    batch = store.batch([0], task.layers)
    known = task.network.head.t2d[batch.choice.clamp(min=0)]
    elsewhere = Batch(batch.ids, batch.choice, batch.features, batch.last.clone(), batch.tokens)
    elsewhere.last[~known & (batch.choice >= 0)] += 5.0
    assert (~known & (batch.choice >= 0)).any()
    torch.testing.assert_close(task.loss(batch, 1.0), task.loss(elsewhere, 1.0))
