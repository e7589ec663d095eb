"""DFlash training: blocks leak nothing, labels sit at their own place, and a block alone gives the same rows."""

import dataclasses

import pytest
import torch
from torch import Tensor

from models.load import Model
from spec_core.training import dflash
from spec_core.training.data import Batch, Store
from tests.training.conftest import MASK

BLOCK = 4
ANCHORS = torch.tensor([[12, 14, 20]])  # the first two overlap


@pytest.fixture
def task(model: Model, store: Store) -> dflash.Task:
    torch.manual_seed(0)
    return dflash.build(model.decoder, store, None, MASK)


@pytest.fixture
def batch(task: dflash.Task, store: Store) -> Batch:
    return store.batch([0], task.layers)


@torch.no_grad()
def blocks(task: dflash.Task, batch: Batch) -> Tensor:
    """Output of the last layer [anchors, block, H]."""
    return task.outputs(batch, ANCHORS, BLOCK)[-1][0].unflatten(0, (-1, BLOCK))


def moved(before: Tensor, after: Tensor) -> list[bool]:
    return ((before - after).abs().amax((1, 2)) > 1e-5).tolist()


def test_features_at_or_behind_the_anchor_change_nothing(task: dflash.Task, batch: Batch) -> None:
    before = blocks(task, batch)
    features = batch.features.clone()
    features[:, 14:] += 1.0
    assert moved(before, blocks(task, dataclasses.replace(batch, features=features))) == [False, False, True]
    features[:, 13] += 1.0
    assert moved(before, blocks(task, dataclasses.replace(batch, features=features))) == [False, True, True]


def test_a_block_sees_its_own_anchor_token_and_no_other(task: dflash.Task, batch: Batch) -> None:
    before = blocks(task, batch)
    ids = batch.ids.clone()
    ids[0, 14] = (ids[0, 14] + 1) % 60
    assert moved(before, blocks(task, dataclasses.replace(batch, ids=ids))) == [False, True, False]


def test_a_later_slot_reaches_an_earlier_one(task: dflash.Task, batch: Batch) -> None:
    with torch.no_grad():
        longer = task.outputs(batch, ANCHORS, BLOCK + 1)[-1][0].unflatten(0, (-1, BLOCK + 1))
    assert all(moved(blocks(task, batch)[:, :2], longer[:, :2]))


@torch.no_grad()
def test_each_block_equals_that_block_run_alone(task: dflash.Task, batch: Batch) -> None:
    head, together = task.network.head, blocks(task, batch)
    for anchor, expected in zip(ANCHORS[0].tolist(), together, strict=True):
        context = task.network.context(batch.features[:, :anchor])
        ids = torch.tensor([[int(batch.ids[0, anchor]), *[MASK] * (BLOCK - 1)]])
        alone = head(task.embed(ids), context, torch.arange(anchor + BLOCK)[None])[-1][0]
        torch.testing.assert_close(alone, expected, atol=1e-4, rtol=1e-4)


def test_the_label_of_a_slot_is_the_token_at_its_place(task: dflash.Task, batch: Batch) -> None:
    n = batch.ids.shape[1]
    anchors = torch.tensor([[12, n - 3]])
    where, slot, told, number = task.judged(batch, anchors, BLOCK)
    places = anchors[0][slot // BLOCK] + slot % BLOCK
    assert torch.equal(number, slot % BLOCK)
    assert torch.equal(batch.choice[where, told], batch.ids[0, places])  # told one row before
    assert places.tolist() == [13, 14, 15, n - 2, n - 1]  # slot 0 is given, and nothing behind the end is judged


def test_anchors_have_an_answer_token_and_one_behind_it(store: Store) -> None:
    batch = store.batch(range(8), ())
    anchors = dflash.draw_anchors(batch, 200, 2)
    prompts = torch.tensor(store.documents["prompt"])[:, None]
    lengths = torch.tensor(store.documents["length"])[:, None]
    assert (anchors >= prompts).all()
    assert (anchors + 2 < lengths).all()
    assert len(anchors[0].unique()) > 10


def test_a_mask_token_that_occurs_is_refused(model: Model, store: Store) -> None:
    with pytest.raises(SystemExit, match="mask"):
        dflash.build(model.decoder, store, None, int(store.ids[0]))


def test_smaller_depths_join_the_loss_in_the_second_part_of_the_run(task: dflash.Task, batch: Batch) -> None:
    losses = []
    for progress in (0.0, 1.0):
        torch.manual_seed(0)  # the same anchors and the same block size
        losses.append(float(task.loss(batch, progress).detach()))
    assert losses[1] > losses[0]
