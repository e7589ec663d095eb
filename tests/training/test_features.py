"""The feature store: what it holds is what the target said, and neither a kill nor a second run changes it."""

import json
from pathlib import Path

import pytest
import torch

from models.load import Model
from spec_core.training.corpus import Corpus, Dialogue
from spec_core.training.data import Store, epoch
from spec_core.training.features import (
    FILES,
    dflash_layers,
    eagle3_layers,
    extract,
    held_out,
    stored_layers,
)
from tests.training.conftest import dialogues


def corpus_of(model: Model, path: Path, count: int) -> Path:
    Corpus(path).add(dialogues(model.decoder, count))
    return path


def content(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in (*FILES, "index.json")]


def test_the_layers_of_the_real_target() -> None:
    assert eagle3_layers(30) == (2, 15, 27)
    assert dflash_layers(30) == (1, 8, 14, 20, 27)
    assert stored_layers(30) == (2, 9, 15, 21, 27, 28, 30)


def test_stored_rows_are_the_targets_own(model: Model, store: Store) -> None:
    span = store.span(3)
    ids = torch.from_numpy(store.ids[span])[None].long()
    out = model.decoder(ids, torch.arange(ids.shape[1])[None], wanted=(2, 4, 5))
    batch = store.batch([3, 0], (2, 4, 5))
    n = ids.shape[1]
    torch.testing.assert_close(batch.features[0, :n], out.features[0], atol=0.05, rtol=0.01)  # bf16
    torch.testing.assert_close(batch.last[0, :n], out.last[0], atol=0.02, rtol=0.01)
    answer = batch.choice[0, :n] >= 0
    wanted = model.decoder.lm_head(out.last[0]).argmax(-1)
    assert torch.equal(batch.choice[0, :n][answer], wanted[answer])


def test_a_sampled_answer_gets_the_targets_first_choice(model: Model, tmp_path: Path) -> None:
    written = dialogues(model.decoder, 1)[0]
    drawn = [*written.ids[:-1], (written.ids[-1] + 1) % 60]
    path = tmp_path / "c.jsonl"
    Corpus(path).add([Dialogue(drawn, written.prompt_length, 0.7, "self", False)])
    extract(model.decoder, path, tmp_path / "f", 10)
    span = Store(tmp_path / "f").span(0, answer=True)
    assert Store(tmp_path / "f").choice[span.start - 1 : span.stop - 1].tolist() == written.answer


def test_extraction_resumes_after_a_kill(model: Model, tmp_path: Path) -> None:
    corpus = corpus_of(model, tmp_path / "c.jsonl", 6)
    extract(model.decoder, corpus, tmp_path / "once", 3)
    extract(model.decoder, corpus, tmp_path / "twice", 3)
    for name in FILES:  # what a kill leaves: rows that the index does not know
        with (tmp_path / "twice" / name).open("ab") as file:
            file.write(b"junk")
    extract(model.decoder, corpus, tmp_path / "once", 6)
    extract(model.decoder, corpus, tmp_path / "twice", 6)
    assert content(tmp_path / "once") == content(tmp_path / "twice")
    assert json.loads((tmp_path / "once/index.json").read_text())["documents"] == 6


def test_features_of_another_target_are_refused(model: Model, tmp_path: Path) -> None:
    corpus = corpus_of(model, tmp_path / "c.jsonl", 1)
    extract(model.decoder, corpus, tmp_path / "f", 1)
    index = json.loads((tmp_path / "f/index.json").read_text())
    (tmp_path / "f/index.json").write_text(json.dumps(index | {"hidden": 64}))
    with pytest.raises(SystemExit, match="another target"):
        extract(model.decoder, corpus, tmp_path / "f", 1)


def test_the_held_out_part_depends_on_the_question_alone() -> None:
    found = [Dialogue([i, i + 1, 9, 9], 2, 0.0, "self", True) for i in range(2000)]
    share = sum(held_out(d) for d in found) / len(found)
    assert 0.015 < share < 0.05
    assert [held_out(d) for d in found] == [held_out(Dialogue([*d.ids, 1], 2, 0.7, "x", False)) for d in found]


def test_an_epoch_is_every_training_dialogue_once(store: Store) -> None:
    for size in (1, 3):
        groups = list(epoch(store, size, "0 0"))
        assert sorted(i for g in groups for i in g) == list(range(8))
    assert list(epoch(store, 3, "0 1")) != list(epoch(store, 3, "0 0"))


def test_the_frequent_ids_are_ascending_and_filled_up(store: Store) -> None:
    kept = store.frequent(60)
    assert kept == sorted(set(kept))
    assert len(kept) == 60
