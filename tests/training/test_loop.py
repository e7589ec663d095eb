"""The training loop and what comes out of it: resuming changes nothing, and each drafter learns its dialogues by heart,
is published, loads as any drafter does, and drafts them."""

import copy
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.load import Model, Network, load_network
from spec_core.decode import Plan as Run
from spec_core.methods import find
from spec_core.trace import Sampling
from spec_core.training import dflash, eagle, eagle3, export, features, loop
from spec_core.training.corpus import Corpus, corpus_file
from spec_core.training.data import Store
from spec_core.training.loop import Plan, Task, Trainer, rate_at
from spec_core.training.report import summarise
from spec_core.training.warm import earlier
from tests.core.drafters import build, play
from tests.toy import target_config, write_folder
from tests.training.conftest import LAYERS, MASK, VOCAB, dialogues

STEPS = {"eagle": 600, "eagle3": 500, "dflash": 700}


def make(kind: str, model: Model, store: Store) -> Task:
    torch.manual_seed(0)
    if kind == "eagle":
        return eagle.build(model.decoder, store, None)
    if kind == "eagle3":
        return eagle3.build(model.decoder, store, None, draft_vocab=VOCAB - 2)
    return dflash.build(model.decoder, store, None, MASK)


def plan_for(kind: str, folder: Path, **changes: object) -> Plan:
    fields = {"name": kind, "minutes": 1.0, "size": 4, "rate": 3e-3, "seed": 0, "target": "tiny", "start": None}
    return Plan(**(fields | {"out": folder / kind, "fresh": True, "device": "cpu"} | changes))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTSCOPE_CACHE", str(tmp_path))
    (tmp_path / "training").mkdir()
    return tmp_path


def learn(trainer: Trainer, steps: int) -> None:
    """Steps without a clock: the budget is spent evenly over them."""
    batches = trainer.batches()
    for i in range(steps):
        trainer.state.seconds = 60 * trainer.plan.minutes * i / steps
        trainer.step(next(batches))


DRAFTERS: dict[str, Callable[..., export.Drafter]] = {
    "eagle": eagle.drafter,
    "eagle3": eagle3.drafter,
    "dflash": dflash.drafter,
}


@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_drafter_learns_eight_dialogues_and_drafts_them(
    kind: str, model: Model, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Store", lambda folder: store)
    monkeypatch.setattr(eagle, "NOISE", 0.0)
    monkeypatch.setattr(eagle3, "SINGLE", 0.3)
    monkeypatch.setattr(dflash, "LAYERS", 2)
    monkeypatch.setattr(dflash, "SLOTS", 64)
    monkeypatch.setattr(dflash, "DEEP", 1.0)
    monkeypatch.setattr(dflash, "ODDS", (0.0, 0.1, 0.1, 0.8))  # learnt by heart at the size that is tested
    task = make(kind, model, store)
    trainer = Trainer(task, store, plan_for(kind, tmp_path))
    learn(trainer, STEPS[kind])
    with torch.no_grad():
        report = summarise([task.hits(store.batch(range(8), task.layers))])
    assert report.accuracy[0] > 0.95
    export.publish(DRAFTERS[kind](task, model.decoder), trainer, model)
    network = load_network(model, str(tmp_path / kind))
    assert accepted(kind, model, network, store) > 2


def accepted(kind: str, model: Model, network: Network, store: Store) -> float:
    """Tokens per step when the published drafter drafts what it has learnt, in the real decoding loop."""
    span, prompt = store.span(0), int(store.documents["prompt"][0])
    ids = store.ids[span].tolist()
    method = find(kind)
    drafter = build(method, model, {kind: network}, {}, Sampling())
    played = play(model, drafter, Run(ids[:prompt], len(ids) - prompt, 512))
    assert played.ids == ids[prompt:]
    steps = played.steps[1:]
    return sum(len(s.committed) for s in steps) / len(steps)


@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_resumed_run_equals_one_that_was_never_stopped(
    kind: str, model: Model, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Store", lambda folder: store)
    straight = Trainer(make(kind, model, store), store, plan_for(kind, tmp_path, name="straight"))
    run(straight, 6)
    first = Trainer(make(kind, model, store), store, plan_for(kind, tmp_path))
    run(first, 3)
    first.save()
    second = Trainer(make(kind, model, store), store, plan_for(kind, tmp_path, fresh=False))
    assert second.state.step == 3
    run(second, 3)
    for a, b in zip(straight.weights, second.weights, strict=True):
        torch.testing.assert_close(a, b, atol=0, rtol=0)


def run(trainer: Trainer, steps: int) -> None:
    batches = trainer.batches()
    for _ in range(steps):
        trainer.step(next(batches))


def test_dialogues_added_meanwhile_join_in_the_next_epoch(
    model: Model, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = copy.copy(store)
    young.documents = store.documents[:4]
    monkeypatch.setattr(loop, "Store", lambda folder: store)
    trainer = Trainer(make("eagle", model, store), young, plan_for("eagle", tmp_path))
    batches = trainer.batches()
    sizes = [next(batches).tokens for _ in range(3)]
    assert sizes[0] == int(store.documents["length"][:4].sum())
    assert sum(sizes[1:]) == int(store.documents["length"].sum())


def test_landed_weights_are_a_start_that_changes_nothing(model: Model, store: Store, tmp_path: Path) -> None:
    for kind, module in (("eagle", eagle), ("eagle3", eagle3), ("dflash", dflash)):
        task = make(kind, model, store)
        trainer = Trainer(task, store, plan_for(kind, tmp_path))
        export.publish(DRAFTERS[kind](task, model.decoder), trainer, model)
        mask = (MASK,) if kind == "dflash" else ()
        again = module.build(model.decoder, store, tmp_path / kind, *mask)
        batch = store.batch(range(8), task.layers)
        with torch.no_grad():
            assert (task.hits(batch) == again.hits(batch)).float().mean() > 0.95  # bf16 between them


def test_a_start_is_read_on_the_processor_whatever_new_tensors_are_born_on(
    model: Model, store: Store, tmp_path: Path
) -> None:
    task = make("eagle3", model, store)
    export.publish(DRAFTERS["eagle3"](task, model.decoder), Trainer(task, store, plan_for("eagle3", tmp_path)), model)
    with torch.device("meta"):
        found = earlier(tmp_path / "eagle3", model.decoder)
    assert {one.device.type for one in (*found.parameters(), *found.buffers())} == {"cpu"}
    assert all(weight.requires_grad for weight in found.parameters())


def test_what_the_start_said_of_itself_is_said_again(model: Model, store: Store, tmp_path: Path) -> None:
    task = make("eagle", model, store)
    first = plan_for("eagle", tmp_path)
    export.publish(DRAFTERS["eagle"](task, model.decoder), Trainer(task, store, first), model)
    said = json.loads((first.out / "config.json").read_text())
    (first.out / "config.json").write_text(json.dumps(said | {"rope_theta": 5e5, "torch_dtype": "float16"}))
    again = plan_for("eagle", tmp_path, start=first.out, out=tmp_path / "again")
    export.publish(DRAFTERS["eagle"](task, model.decoder), Trainer(task, store, again), model)
    assert json.loads((again.out / "config.json").read_text()) == said | {"rope_theta": 5e5}
    assert f"--from {first.out}" in (again.out / "README.md").read_text()


def test_a_checkpoint_of_another_start_is_not_taken_up(model: Model, store: Store, tmp_path: Path) -> None:
    plan = plan_for("eagle", tmp_path, fresh=False)
    Trainer(make("eagle", model, store), store, plan).save()
    Trainer(make("eagle", model, store), store, plan)
    with pytest.raises(SystemExit, match="of another target or --from: --fresh"):
        Trainer(make("eagle", model, store), store, plan_for("eagle", tmp_path, fresh=False, start=tmp_path))


def test_a_scaled_rope_is_refused_before_hours_of_training(model: Model) -> None:
    loop.check_rope(model.decoder)
    scaled = copy.copy(model.decoder)
    rope = scaled.config.rope
    for other in (replace(rope, scale=1.2), replace(rope, inv_freq=(*rope.inv_freq[:-1], rope.inv_freq[-1] / 8))):
        scaled.config = replace(model.decoder.config, rope=other)
        with pytest.raises(SystemExit, match="scales its rope"):
            loop.check_rope(scaled)


def test_the_rate_warms_up_and_ends_at_zero() -> None:
    assert rate_at(0.0, 0, 1e-3) < 1e-4
    assert rate_at(0.1, 100, 1e-3) > 9e-4
    assert rate_at(1.0, 100, 1e-3) == 0


def test_a_report_counts_a_guess_only_after_right_ones() -> None:
    hits = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 1], [0, 1, 1, 1]]).bool()
    report = summarise([hits])
    assert report.accuracy == pytest.approx([3 / 4, 2 / 3, 1 / 2])
    assert report.tau == pytest.approx(1 + 6 / 4)


@pytest.mark.parametrize("module", [eagle, eagle3, dflash])
def test_the_command_trains_reports_and_publishes(
    module: object, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = write_folder(tmp_path / "target", target_config(VOCAB) | {"num_hidden_layers": LAYERS}, model.decoder)
    Corpus(corpus_file()).add(dialogues(model.decoder, 10))
    monkeypatch.setattr(features, "HELD_OUT", 30)
    monkeypatch.setattr(dflash, "MASK", MASK)
    monkeypatch.setattr(sys, "argv", ["features", "--target", str(target)])
    features.main()
    before = signal.getsignal(signal.SIGTERM)
    name = module.__name__.split(".")[-1]  # type: ignore[attr-defined]
    monkeypatch.setattr(
        sys, "argv", [name, "--target", str(target), "--minutes", "0.01", "--out", str(tmp_path / "out")]
    )
    module.main()  # type: ignore[attr-defined]
    assert signal.getsignal(signal.SIGTERM) is before
    assert "chain tau" in capsys.readouterr().out
    assert "--minutes 0.01" in (tmp_path / "out/README.md").read_text()
    stated = json.loads((tmp_path / "out/config.json").read_text())
    assert stated["rope_theta"] == 10000.0
    assert stated["head_dim"] == 8
    assert load_network(model, str(tmp_path / "out")).layers == (5 if name == "dflash" else 1)
