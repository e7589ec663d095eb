"""A drafter goes into every published layout and back without a bit changed; what is written is an ordinary folder."""

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig

from models import export, files, formats
from models.catalog import BUNDLED
from models.decoder import DecoderConfig, read_config
from models.fetch import fetch_embedded
from models.load import load_network, load_target
from tests.toy import toy_drafter_folders, toy_folder

EVERY = [(kind, name) for kind, known in export.LAYOUTS.items() for name in known]
OURS = {kind: BUNDLED / "smollm2-135m" / kind for kind in export.LAYOUTS}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_folder(tmp_path_factory.mktemp("export") / "target")


@pytest.fixture(scope="module")
def drafters(target: Path) -> dict[str, Path]:
    return toy_drafter_folders(target.parent / "drafters")


@pytest.fixture(scope="module")
def smollm() -> DecoderConfig:
    return read_config(files.read_json(fetch_embedded() / "config.json"))


def run(folder: Path, out: Path, target: Path, *options: str) -> int:
    return export.main([str(folder), str(out), "--target", str(target), *options])


def assert_same(ours: dict[str, Tensor], others: dict[str, Tensor]) -> None:
    assert ours.keys() == others.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == others[name].dtype, name
        assert torch.equal(tensor, others[name]), name


@pytest.mark.parametrize(("kind", "layout"), EVERY)
def test_the_bundled_drafters_go_there_and_back_bit_for_bit(
    tmp_path: Path, smollm: DecoderConfig, kind: str, layout: str
) -> None:
    """From ours to the layout, and from the layout to ours again."""
    there, back = tmp_path / "there", tmp_path / "back"
    export.export(OURS[kind], there, "smollm2-135m", layout)
    export.export(there, back, "smollm2-135m")
    ours = load_file(OURS[kind] / "model.safetensors")
    returned = load_file(back / "model.safetensors")
    table = returned.pop("embed_tokens.weight", None)
    assert_same(ours, returned)
    first, again = formats.load(OURS[kind], smollm), formats.load(back, smollm)
    assert first.config.rope == again.config.rope
    assert first.config.feature_layers == again.config.feature_layers
    assert first.config.attention == again.config.attention
    whole = files.read_tensors(fetch_embedded())["model.embed_tokens.weight"]
    assert table is None or torch.equal(table, whole.to(table.dtype))


# What the projects' own files look like.

HEAD = {"fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"}
PARTS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm")
PARTS += ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def layer(prefix: str, *more: str) -> set[str]:
    return {f"{prefix}.{part}.weight" for part in (*PARTS, *more)}


NAMES = {
    "eagle": layer("layers.0") | {"fc.weight", "fc.bias", "embed_tokens.weight"},
    "eagle3": layer("midlayer", "hidden_norm", "input_layernorm") | HEAD,
    "eagle3 speculators": layer("layers.0", "hidden_norm", "input_layernorm") | HEAD | {"embed_tokens.weight"},
    "dflash": {"fc.weight", "hidden_norm.weight", "norm.weight"}.union(
        *(layer(f"layers.{i}", "input_layernorm", "self_attn.q_norm", "self_attn.k_norm") for i in range(5))
    ),
}
SAYS = {
    ("eagle", "safeailab"): ("LlamaForCausalLM", {"bias": True}),
    ("eagle", "safeailab-bin"): ("LlamaForCausalLM", {"bias": True}),
    ("eagle3", "specforge"): (
        "LlamaForCausalLMEagle3",
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 14, 26], "use_aux_hidden_state": True}},
    ),
    ("eagle3", "safeailab"): ("LlamaForCausalLM", {"draft_vocab_size": 8192, "eagle_config": None}),
    ("eagle3", "angelslim"): ("Eagle3LlamaForCausalLM", {"tie_word_embeddings": True}),
    ("eagle3", "speculators"): (
        "Eagle3DraftModel",
        {"eagle_aux_hidden_state_layer_ids": [2, 15, 27], "norm_before_residual": False, "hidden_size": None},
    ),
    ("dflash", "zlab"): ("DFlashDraftModel", {"block_size": 16, "num_target_layers": 30, "rope_parameters": None}),
    ("dflash", "specforge"): ("DFlashDraftModel", {"rope_theta": 1e5}),
    ("dflash", "speculators"): (
        "DFlashDraftModel",
        {"aux_hidden_state_layer_ids": [2, 9, 15, 21, 28], "mask_token_id": 16, "dflash_config": None},
    ),
}


@pytest.mark.parametrize(("kind", "layout"), EVERY)
def test_a_layout_is_the_published_one(tmp_path: Path, kind: str, layout: str) -> None:
    """Names, file and fields as in the projects' own folders; None: the layout has no such field."""
    export.export(OURS[kind], tmp_path, "smollm2-135m", layout)
    file = "pytorch_model.bin" if layout == "safeailab-bin" or (kind, layout) == ("eagle3", "safeailab") else None
    assert (tmp_path / (file or "model.safetensors")).exists()
    assert set(files.read_tensors(tmp_path)) == NAMES.get(f"{kind} {layout}", NAMES[kind])
    config = json.loads((tmp_path / "config.json").read_text())
    architecture, fields = SAYS[kind, layout]
    assert config["architectures"] == [architecture]
    assert {name: config.get(name) for name in fields} == fields
    assert "auto_map" not in config


@pytest.mark.parametrize(("kind", "layout"), EVERY)
def test_the_folder_is_an_ordinary_hub_folder(tmp_path: Path, kind: str, layout: str) -> None:
    export.export(OURS[kind], tmp_path, "smollm2-135m", layout)
    card = ModelCard.load(tmp_path / "README.md").data.to_dict()
    assert card["base_model"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert card["license"] == "apache-2.0"
    assert kind in card["tags"]
    if layout != "speculators":  # whose configs only speculators itself can open
        assert AutoConfig.from_pretrained(tmp_path).hidden_size == 576


def test_a_foreign_drafter_gets_no_licence_from_us(tmp_path: Path, target: Path, drafters: dict[str, Path]) -> None:
    assert run(drafters["eagle"], tmp_path / "out", target) == 0
    text = (tmp_path / "out/README.md").read_text()
    assert "licence is not known" in text
    assert "license" not in ModelCard(text).data.to_dict()


@pytest.mark.parametrize(
    ("kind", "options", "embedded"),
    [("eagle", (), True), ("eagle3", (), False), ("eagle3", ("--embed",), True), ("dflash", (), False)],
)
def test_the_embedding_is_where_it_is_wanted(
    tmp_path: Path, target: Path, drafters: dict[str, Path], kind: str, options: tuple[str, ...], embedded: bool
) -> None:
    assert run(drafters[kind], tmp_path / "out", target, *options) == 0
    written = load_file(tmp_path / "out/model.safetensors")
    table = written.pop("embed_tokens.weight", None)
    assert_same(load_file(drafters[kind] / "model.safetensors"), written)
    assert embedded == (table is not None)
    if table is not None:
        assert torch.equal(table, load_file(target / "model.safetensors")["model.embed_tokens.weight"])


def test_an_exported_drafter_loads_here_too(tmp_path: Path, target: Path, drafters: dict[str, Path]) -> None:
    """And its copy of the target's embedding is let go of."""
    run(drafters["eagle"], tmp_path / "out", target)
    model = load_target(str(target), "cpu")
    ours, again = (load_network(model, str(folder)).module for folder in (drafters["eagle"], tmp_path / "out"))
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), again.parameters(), strict=True))
    assert again.embed_tokens is None


def test_what_cannot_be_exported_is_said(
    tmp_path: Path, target: Path, drafters: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(drafters["dflash"], tmp_path / "out", target, "--embed") == 1
    assert run(drafters["dflash"], tmp_path / "out", target, "--layout", "angelslim") == 1
    assert run(drafters["eagle3"], tmp_path / "out", target, "--layout", "safeailab") == 1
    assert run(tmp_path, tmp_path / "out", target) == 1
    (tmp_path / "note").write_text("mine")
    assert run(drafters["eagle"], tmp_path, target) == 1
    said = capsys.readouterr().err
    assert "no place for an embedding" in said
    assert "no layout 'angelslim': choose one of zlab, specforge, speculators" in said
    assert "always reads layers [2, 2, 1], and the drafter reads [0, 2, 3]" in said
    assert "has no config.json" in said
    assert "is not empty" in said
    assert (tmp_path / "note").read_text() == "mine"
    assert not (tmp_path / "out").exists()
