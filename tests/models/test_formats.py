"""Published drafter layouts load as what they are, and whatever does not fit is refused with the reason.

Rows named E-B.. and D-T.. are faults other implementations had.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from models import files, formats
from models.decoder import ConfigError, DecoderConfig
from models.formats import FormatError
from models.heads import DFlashHead, DrafterNetwork, Eagle3Head, EagleHead
from tests.toy import FUSED, HIDDEN, LAYERS, drafter_config, random_network, toy_model, write_folder

VOCAB = 64
KINDS = ("eagle", "eagle3", "dflash")
Parts = tuple[dict[str, Any], dict[str, Tensor]]


@pytest.fixture(scope="module")
def target() -> DecoderConfig:
    return toy_model().decoder.config


def parts(kind: str) -> Parts:
    """A config.json and the tensors that go with it, free to be changed."""
    module = random_network(kind, VOCAB, seed=3)
    return drafter_config(kind, VOCAB), {name: t.detach().clone() for name, t in module.state_dict().items()}


def assert_weights(network: DrafterNetwork, tensors: dict[str, Tensor]) -> None:
    """Every tensor arrived, under whichever name."""
    state = network.state_dict()
    for name, tensor in tensors.items():
        assert torch.equal(state[name.replace("layers.0.", "midlayer.") if name not in state else name], tensor), name


def refused(config: dict[str, Any], tensors: dict[str, Tensor], target: DecoderConfig) -> str:
    with pytest.raises(ConfigError) as error:
        formats.parse(config, tensors, target)
    return str(error.value)


# Layouts.


@pytest.mark.parametrize(("kind", "module"), [*zip(KINDS, (EagleHead, Eagle3Head, DFlashHead), strict=True)])
@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_a_folder_loads(tmp_path: Path, target: DecoderConfig, kind: str, module: type, file: str) -> None:
    config, tensors = parts(kind)
    (tmp_path / "config.json").write_text(json.dumps(config))
    save = save_file if file.endswith("safetensors") else torch.save
    save(dict(tensors), tmp_path / file)
    network = formats.load(tmp_path, target)
    assert type(network) is module
    assert_weights(network, tensors)


def test_shards_are_read_together(tmp_path: Path, target: DecoderConfig) -> None:
    config, tensors = parts("dflash")
    (tmp_path / "config.json").write_text(json.dumps(config))
    names = sorted(tensors)
    save_file({n: tensors[n] for n in names[::2]}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({n: tensors[n] for n in names[1::2]}, tmp_path / "model-00002-of-00002.safetensors")
    assert_weights(formats.load(tmp_path, target), tensors)


@pytest.mark.parametrize("kind", KINDS)
def test_wrappers_names_and_buffers_are_seen_through(target: DecoderConfig, kind: str) -> None:
    """A `model.` prefix, rotary buffers, and a copy of the target's embedding."""
    config, tensors = parts(kind)
    wrapped = {f"model.{name}": tensor for name, tensor in tensors.items()}
    wrapped["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    wrapped["model.embed_tokens.weight"] = torch.ones(VOCAB, HIDDEN)
    assert_weights(formats.parse(config, wrapped, target), tensors)


def speculators(flags: dict[str, Any]) -> Parts:
    """The same EAGLE-3 head as speculators writes it: nested config, layers.0 for midlayer."""
    config, tensors = parts("eagle3")
    outer = {"speculators_model_type": "eagle3", "draft_vocab_size": config.pop("draft_vocab_size")} | flags
    outer["eagle_aux_hidden_state_layer_ids"] = config.pop("eagle_aux_hidden_state_layer_ids")
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    return outer | {"transformer_layer_config": config}, renamed


def test_the_speculators_layout_is_the_same_head(target: DecoderConfig) -> None:
    network = formats.parse(*speculators({}), target)
    config, tensors = parts("eagle3")
    assert network.config == formats.parse(config, tensors, target).config
    assert_weights(network, tensors)


@pytest.mark.parametrize("flag", ["norm_before_residual", "norm_output"])
def test_e_b15_flags_survive(target: DecoderConfig, flag: str) -> None:
    """E-B15: a lost flag loads silently and ruins acceptance."""
    assert getattr(formats.parse(*speculators({flag: True}), target).config, flag) is True
    assert getattr(formats.parse(*speculators({}), target).config, flag) is False


@pytest.mark.parametrize(
    ("flag", "weights"),
    [
        ("norm_before_fc", {"input_norm.weight": (HIDDEN * 3,)}),
        ("fc_norm", {f"fc_norm.{i}.weight": (HIDDEN,) for i in range(3)}),
    ],
)
def test_e_b17_a_flag_and_its_weights_go_together(
    target: DecoderConfig, flag: str, weights: dict[str, tuple[int, ...]]
) -> None:
    """E-B15, E-B17: weights are used even where the flag was lost; a flag without weights is refused."""
    config, tensors = speculators({})
    full = tensors | {name: torch.full(shape, 2.0) for name, shape in weights.items()}
    network = formats.parse(config, full, target)
    assert getattr(network.config, flag) is True
    features = torch.randn(1, 4, 3 * HIDDEN, generator=torch.Generator().manual_seed(0))
    plain = formats.parse(config, tensors, target)
    assert isinstance(network, Eagle3Head)
    assert isinstance(plain, Eagle3Head)
    assert not torch.allclose(network.fuse(features), plain.fuse(features))
    assert "missing" in refused(config | {flag: True}, tensors, target)


# EAGLE.


def test_e_b10_a_silent_config_means_a_bias(target: DecoderConfig) -> None:
    """E-B10."""
    config, tensors = parts("eagle")
    tensors["fc.bias"] = torch.arange(HIDDEN).float()
    network = formats.parse(config, tensors, target)
    assert isinstance(network, EagleHead)
    assert torch.equal(network.fc.bias, tensors["fc.bias"])
    del tensors["fc.bias"]
    assert "missing ['fc.bias']" in refused(config, tensors, target)
    assert isinstance(formats.parse(config | {"bias": False}, tensors, target), EagleHead)


@pytest.mark.parametrize("name", ["layers.0.input_layernorm.weight", "lm_head.weight"])
def test_e_b9_an_eagle_head_has_no_input_norm_and_no_head(target: DecoderConfig, name: str) -> None:
    """E-B9: such a file is something else, and would draft nonsense."""
    config, tensors = parts("eagle")
    assert f"not known ['{name}']" in refused(config, tensors | {name: torch.ones(HIDDEN)}, target)


@pytest.mark.parametrize("kind", KINDS)
def test_e_b11_head_dim_comes_from_the_weights(target: DecoderConfig, kind: str) -> None:
    """E-B11: an absent head_dim is read off q_proj; a wrong one is refused."""
    config, tensors = parts(kind)
    silent = {name: value for name, value in config.items() if name != "head_dim"}
    assert formats.parse(silent, tensors, target).config.attention.head_dim == 8
    assert "head_dim 80 and the weights have 8" in refused(config | {"head_dim": 80}, tensors, target)


def test_a_head_without_theta_turns_with_ten_thousand(target: DecoderConfig) -> None:
    for kind in ("eagle", "eagle3"):
        config, tensors = parts(kind)
        stated = formats.parse(config, tensors, target).config.rope
        assert formats.parse(config | {"rope_theta": None}, tensors, target).config.rope == stated
        assert formats.parse(config | {"rope_theta": 5e5}, tensors, target).config.rope != stated


def layered(target: DecoderConfig, layers: int) -> DecoderConfig:
    return replace(target, layers=layers)


@pytest.mark.parametrize(
    ("stated", "read"),
    [
        ({}, (2, 16, 29)),
        ({"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}, (2, 16, 29)),
        ({"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}, (2, 16, 29)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}}, (2, 16, 29)),
        ({"eagle_aux_hidden_state_layer_ids": None}, (2, 16, 29)),
    ],
)
def test_e_b12_both_dialects_of_feature_layers(
    target: DecoderConfig, stated: dict[str, Any], read: tuple[int, ...]
) -> None:
    """E-B12: ids that start with 1 count a layer's output, the others what enters it."""
    config, tensors = parts("eagle3")
    del config["eagle_aux_hidden_state_layer_ids"]
    assert formats.parse(config | stated, tensors, layered(target, 32)).config.feature_layers == read


@pytest.mark.parametrize("ids", [[2, 2, 3], [-1, 2, 3], [2, 3, LAYERS + 1]])
def test_feature_layers_that_cannot_be(target: DecoderConfig, ids: list[int]) -> None:
    config, tensors = parts("eagle3")
    said = refused(config | {"eagle_aux_hidden_state_layer_ids": ids}, tensors, target)
    assert f"reads layers {ids}" in said


def test_a_target_too_shallow_for_the_default_layers(target: DecoderConfig) -> None:
    config, tensors = parts("eagle3")
    del config["eagle_aux_hidden_state_layer_ids"]
    assert "has only 4 layers" in refused(config, tensors, target)
    assert len(FUSED) == 3


def test_e_b29_a_claim_to_be_tied_does_not_cost_the_head(target: DecoderConfig) -> None:
    """E-B29: AngelSlim says tie_word_embeddings and ships a smaller head of its own."""
    config, tensors = parts("eagle3")
    network = formats.parse(config | {"tie_word_embeddings": True}, tensors, target)
    assert isinstance(network, Eagle3Head)
    assert torch.equal(network.lm_head.weight, tensors["lm_head.weight"])
    del tensors["lm_head.weight"]
    assert "missing ['lm_head.weight']" in refused(config | {"tie_word_embeddings": True}, tensors, target)


def test_a_second_layer_is_refused(target: DecoderConfig) -> None:
    config, tensors = parts("eagle3")
    assert "more than one layer" in refused(config, tensors | {"layers.1.mlp.up_proj.weight": torch.ones(2)}, target)


# The draft vocabulary.


def swapped(d2t: Tensor) -> Tensor:
    """Draft ids 4 and 5 name each other's words."""
    words = torch.arange(len(d2t)) + d2t
    words[[4, 5]] = words[[5, 4]]
    return words - torch.arange(len(d2t))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda t: t.update(d2t=torch.zeros_like(t["d2t"])), "all zero"),
        (lambda t: t.update(d2t=swapped(t["d2t"])), "ascending"),
        (lambda t: t.update(d2t=t["d2t"] + 20), "ascending target ids"),
        (lambda t: t.update(d2t=t["d2t"] - 1), "d2t"),
        (lambda t: t.update(d2t=t["d2t"][:-1]), "do not fit"),
        (lambda t: t.update(t2d=t["t2d"].roll(1)), "different tokens"),
        (lambda t: t.pop("d2t"), "missing ['d2t'"),
    ],
    ids=["zero", "unsorted", "out of range", "shifted", "short", "t2d", "absent"],
)
def test_a_broken_vocabulary_map_is_refused(
    target: DecoderConfig, spoil: Callable[[dict[str, Tensor]], Any], said: str
) -> None:
    config, tensors = parts("eagle3")
    spoil(tensors)
    assert said in refused(config, tensors, target)


def test_the_map_from_d2t_alone(target: DecoderConfig) -> None:
    config, tensors = parts("eagle3")
    known = tensors.pop("t2d")
    network = formats.parse(config, tensors, target)
    assert isinstance(network, Eagle3Head)
    assert torch.equal(network.t2d, known)
    words = network.to_target(torch.arange(network.config.draft_vocab))
    assert words.tolist() == known.nonzero().flatten().tolist()


def test_a_whole_vocabulary_needs_no_map(target: DecoderConfig) -> None:
    config, tensors = parts("eagle3")
    del config["draft_vocab_size"], tensors["d2t"], tensors["t2d"]
    tensors["lm_head.weight"] = torch.randn(VOCAB, HIDDEN)
    zero = torch.zeros(VOCAB, dtype=torch.long)  # legal here: every offset is zero
    for given in (tensors, tensors | {"d2t": zero}):
        network = formats.parse(config, dict(given), target)
        assert isinstance(network, Eagle3Head)
        assert network.to_target(torch.arange(VOCAB)).tolist() == list(range(VOCAB))


# DFlash.


def dflash(change: dict[str, Any], inner: dict[str, Any]) -> Parts:
    """A config with fields changed at both levels; None deletes one."""
    config, tensors = parts("dflash")
    config |= change
    config["dflash_config"] = config["dflash_config"] | inner
    config["dflash_config"] = {k: v for k, v in config["dflash_config"].items() if v is not None}
    return {k: v for k, v in config.items() if v is not None}, tensors


def read_dflash(change: dict[str, Any], inner: dict[str, Any], target: DecoderConfig) -> Any:
    return formats.parse(*dflash(change, inner), target).config


def test_d_t2_published_ids_name_a_layers_output(target: DecoderConfig) -> None:
    """D-T2: id l is hidden_states[l + 1]; speculators counts l + 1 already."""
    assert read_dflash({}, {"target_layer_ids": [0, 2]}, target).feature_layers == (1, 3)
    counted = {"aux_hidden_state_layer_ids": [1, 3]}
    assert read_dflash(counted, {"target_layer_ids": None}, target).feature_layers == (1, 3)


@pytest.mark.parametrize(
    ("depth", "count", "read"),
    [(36, 5, (1, 9, 17, 25, 33)), (64, 5, (1, 16, 31, 46, 61)), (24, 5, (1, 6, 11, 16, 21)), (9, 1, (4,))],
)
def test_default_layers(target: DecoderConfig, depth: int, count: int, read: tuple[int, ...]) -> None:
    assert formats.tapped_layers({"num_hidden_layers": count}, layered(target, depth)) == read


@pytest.mark.parametrize("ids", [[1, 1], [-1, 2], [0, LAYERS]])
def test_impossible_layers_are_refused(target: DecoderConfig, ids: list[int]) -> None:
    """D-T32."""
    assert "must be different layers from 0 to 3" in refused(*dflash({}, {"target_layer_ids": ids}), target)


def test_a_width_that_does_not_fit_the_layers(target: DecoderConfig) -> None:
    """D-T32: fc reads as many features as there are ids."""
    said = refused(*dflash({}, {"target_layer_ids": [0, 1, 2]}), target)
    assert "fc.weight reads 64 numbers, and the features of layers [0, 1, 2] are 3 × 32" in said


def test_d_t9_theta_is_never_guessed(target: DecoderConfig) -> None:
    """D-T9."""
    assert "names no rope_theta" in refused(*dflash({"rope_theta": None}, {}), target)
    stated = read_dflash({"rope_theta": 1e6}, {}, target).rope
    new = {"rope_theta": None, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}
    assert read_dflash(new, {}, target).rope == stated
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    old = read_dflash({"rope_theta": 1e6, "rope_scaling": yarn}, {}, target).rope
    both = {"rope_theta": None, "rope_parameters": yarn | {"rope_theta": 1e6}}
    assert read_dflash(both, {}, target).rope == old != stated


FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.mark.parametrize("kinds", [[FULL, FULL], [SLIDING, FULL], [FULL, SLIDING], [SLIDING, SLIDING]])
@pytest.mark.parametrize("outer", [None, True, False])
@pytest.mark.parametrize("inner", [None, True, False])
def test_d_t12_who_looks_only_back_inside_the_block(
    target: DecoderConfig, kinds: list[str], outer: bool | None, inner: bool | None
) -> None:
    """D-T12: is_causal, else dflash_config.causal, else the sliding layers."""
    config = read_dflash({"layer_types": kinds, "sliding_window": 6, "is_causal": outer}, {"causal": inner}, target)
    stated = inner if outer is None else outer
    by_kind = tuple(kind == SLIDING for kind in kinds)
    assert config.causal == (by_kind if stated is None else (stated, stated))
    assert config.windows == tuple(6 if kind == SLIDING else 0 for kind in kinds)


def test_layer_types_that_cannot_be(target: DecoderConfig) -> None:
    assert "no sliding_window" in refused(*dflash({"layer_types": [SLIDING, FULL]}, {}), target)
    assert "3 layer_types for 2 layers" in refused(*dflash({"layer_types": [FULL] * 3}, {}), target)


def test_d_t14_the_block_size_stands_in_either_place(target: DecoderConfig) -> None:
    """D-T14."""
    assert read_dflash({"block_size": 5}, {}, target).block_size == 5
    assert read_dflash({"block_size": None}, {"block_size": 5}, target).block_size == 5
    assert read_dflash({"block_size": 5}, {"block_size": 5}, target).block_size == 5
    assert "twice, as 5 and 6" in refused(*dflash({"block_size": 5}, {"block_size": 6}), target)
    assert "no block_size" in refused(*dflash({"block_size": None}, {}), target)
    assert "no block_size of at least 2" in refused(*dflash({"block_size": 1}, {}), target)


@pytest.mark.parametrize("mask", [None, -1, VOCAB])
def test_d_t15_the_mask_is_a_row_of_the_table(target: DecoderConfig, mask: int | None) -> None:
    """D-T15: the config's id wins, and no table is resized."""
    assert f"mask_token_id {mask} is no row" in refused(*dflash({}, {"mask_token_id": mask}), target)
    assert read_dflash({}, {"mask_token_id": VOCAB - 1}, target).mask_token == VOCAB - 1
    assert read_dflash({"mask_token_id": 9}, {"mask_token_id": None}, target).mask_token == 9


@pytest.mark.parametrize(
    ("change", "said"),
    [({"final_logit_softcapping": 30.0}, "final_logit_softcapping"), ({"projector_type": "domino"}, "'domino'")],
)
def test_relatives_are_not_mistaken_for_it(target: DecoderConfig, change: dict[str, Any], said: str) -> None:
    assert said in refused(*dflash(change, {}), target)
    assert said in refused(*dflash({}, change), target)


# Wrong pairs and broken files.


@pytest.mark.parametrize("kind", KINDS)
def test_a_drafter_for_another_target_is_refused(target: DecoderConfig, kind: str) -> None:
    config, tensors = parts(kind)
    assert "trained for hidden size 32, the target has 48" in refused(config, dict(tensors), replace(target, hidden=48))
    said = refused(config, dict(tensors), replace(target, vocab=70))
    assert "trained for a vocabulary of 64, the target has 70" in said
    if kind != "eagle":
        assert "layers" in refused(config, dict(tensors), replace(target, layers=2))


def test_a_foreign_width_is_refused(target: DecoderConfig) -> None:
    config, tensors = parts("eagle3")
    said = refused(config | {"target_hidden_size": 48}, tensors, target)
    assert "trained for hidden size 48, the target has 32" in said


@pytest.mark.parametrize("kind", KINDS)
def test_missing_and_strange_tensors_are_named(target: DecoderConfig, kind: str) -> None:
    config, tensors = parts(kind)
    lost = next(name for name in tensors if name.endswith("down_proj.weight"))
    without = {name: tensor for name, tensor in tensors.items() if name != lost}
    assert lost in refused(config, without, target)
    gone = {name: tensor for name, tensor in tensors.items() if "q_proj" not in name}
    assert "q_proj.weight" in refused(config, gone, target)
    assert "odd.weight" in refused(config, tensors | {"odd.weight": torch.ones(1)}, target)
    wide = tensors | {lost: torch.ones(HIDDEN, 7)}
    assert "size mismatch" in refused(config, wide, target)
    assert "no 'hidden_size'" in refused(config | {"hidden_size": None}, tensors, target)


def test_other_weights_are_no_drafter(target: DecoderConfig) -> None:
    assert "no EAGLE, EAGLE-3 or DFlash drafter" in refused({}, {"lm_head.weight": torch.ones(2, 2)}, target)


def test_broken_folders_say_what_to_do(tmp_path: Path, target: DecoderConfig) -> None:
    def said() -> str:
        with pytest.raises(FormatError) as error:
            formats.load(tmp_path, target)
        return str(error.value)

    assert "has no config.json: point at a folder" in said()
    (tmp_path / "config.json").write_text("{oh")
    assert "is not JSON: download it again" in said()
    (tmp_path / "config.json").write_text("{}")
    assert "download the weights" in said()
    (tmp_path / "model.safetensors").write_bytes(b"not at all")
    assert "model.safetensors cannot be read: download it again" in said()


def test_a_fingerprint_follows_the_content(tmp_path: Path) -> None:
    config, module = drafter_config("eagle", VOCAB), random_network("eagle", VOCAB, seed=3)
    folders = [write_folder(tmp_path / name, config, module) for name in "ab"]
    one, other = map(files.fingerprint, folders)
    assert one == other
    write_folder(folders[0], config, random_network("eagle", VOCAB, seed=4))
    write_folder(folders[1], config | {"bias": True}, module)
    assert len({one, *map(files.fingerprint, folders)}) == 3
