"""An exported drafter is the bundled one, with the embedding where other programs look for it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from models import export
from models.load import load_network, load_target
from tests.toy import toy_drafter_folders, toy_folder


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_folder(tmp_path_factory.mktemp("export") / "target")


@pytest.fixture(scope="module")
def drafters(target: Path) -> dict[str, Path]:
    return toy_drafter_folders(target.parent / "drafters")


def run(folder: Path, out: Path, target: Path, *options: str) -> int:
    return export.main([str(folder), str(out), "--target", str(target), *options])


@pytest.mark.parametrize(
    ("kind", "options", "embedded"),
    [("eagle", (), True), ("eagle3", (), False), ("eagle3", ("--embed",), True), ("dflash", (), False)],
)
def test_the_layout_is_the_published_one(
    tmp_path: Path, target: Path, drafters: dict[str, Path], kind: str, options: tuple[str, ...], embedded: bool
) -> None:
    assert run(drafters[kind], tmp_path / "out", target, *options) == 0
    ours, written = (load_file(folder / "model.safetensors") for folder in (drafters[kind], tmp_path / "out"))
    table = written.pop("embed_tokens.weight", None)
    assert written.keys() == ours.keys()
    assert all(torch.equal(written[name], ours[name]) for name in ours)
    assert json.loads((tmp_path / "out/config.json").read_text()) == json.loads(
        (drafters[kind] / "config.json").read_text()
    )
    if embedded:
        assert table is not None
        assert torch.equal(table, load_file(target / "model.safetensors")["model.embed_tokens.weight"])
    assert embedded == (table is not None)


def test_an_exported_drafter_loads_here_too(tmp_path: Path, target: Path, drafters: dict[str, Path]) -> None:
    run(drafters["eagle"], tmp_path / "out", target)
    model = load_target(str(target), "cpu")
    ours, again = (load_network(model, str(folder)).module for folder in (drafters["eagle"], tmp_path / "out"))
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), again.parameters(), strict=True))


def test_what_cannot_be_exported_is_said(
    tmp_path: Path, target: Path, drafters: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(drafters["dflash"], tmp_path / "out", target, "--embed") == 1
    assert run(tmp_path, tmp_path / "out", target) == 1
    (tmp_path / "note").write_text("mine")
    assert run(drafters["eagle"], tmp_path, target) == 1
    said = capsys.readouterr().err
    assert "no place for an embedding" in said
    assert "has no config.json" in said
    assert "is not empty" in said
    assert (tmp_path / "note").read_text() == "mine"
