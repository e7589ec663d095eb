"""Faults other implementations had, row by row, where reading a file alone does not show them: they need numbers.

E-B.. are EAGLE's, D-T.. DFlash's. The other rows are in test_formats.py and test_heads.py, named alike.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from models import files, formats, found, layers
from models.decoder import DecoderConfig, read_rope
from models.formats import FormatError
from models.heads import DFlashConfig, DFlashHead, Eagle3Head, EagleHead, new_cache
from models.layers import (
    MLP,
    IntelPacked,
    Packed,
    RMSNorm,
    Rope,
    additive,
    default_inv_freq,
    rotate,
    speed_up,
)
from models.load import Model, Network, load_network, load_target, share
from models.tokenizer import Tokenizer
from spec_core import methods
from spec_core.block import BlockDrafter
from spec_core.contract import Clock
from spec_core.decode import Plan, decode
from spec_core.target import CachedTarget
from spec_core.trace import Sampling
from tests.toy import HIDDEN, drafter_config, random_network, toy_folder, toy_model

GOLDEN = Path(__file__).parent.parent / "golden"
VOCAB = 64
PROMPT = [1, 6, 17, 42, 9, 33]


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def target() -> DecoderConfig:
    return toy_model().decoder.config


def parts(kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    module = random_network(kind, VOCAB, seed=3)
    return drafter_config(kind, VOCAB), {name: t.detach().clone() for name, t in module.state_dict().items()}


# The target lends the layers that were meant.

DEEP = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 9, "rms_norm_eps": 1e-5}
DEEP |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rope_theta": 1e4}


def both(folder: Path, family: str, layers: int = 9) -> tuple[Model, Any]:
    """The same random target for us and for transformers."""
    config = DEEP | {"model_type": family, "tie_word_embeddings": False, "head_dim": 8, "num_hidden_layers": layers}
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).float().eval()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(theirs.state_dict(), folder / "model.safetensors", {"format": "pt"})
    return load_target(str(folder), "cpu"), theirs


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_e_b13_the_wrapped_target_is_transformers_and_lends_three_features(tmp_path: Path, family: str) -> None:
    model, theirs = both(tmp_path / "target", family)
    want = theirs(torch.tensor([PROMPT]), output_hidden_states=True)
    scores = CachedTarget(model, (2, 4, 6), 64).prefill(PROMPT, Clock())
    assert torch.allclose(scores.logits[0], want.logits[0, -1], atol=1e-4)
    assert scores.features.shape == (len(PROMPT), 3 * 32)


@pytest.mark.parametrize("layers", [7, 9, 12])
def test_e_b12_the_features_are_hidden_states_2_half_and_third_from_the_end(tmp_path: Path, layers: int) -> None:
    model, theirs = both(tmp_path / "target", "llama", layers)
    taken = formats.fused_layers({}, model.decoder.config)
    hidden = theirs(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states
    want = torch.cat([hidden[2][0], hidden[layers // 2][0], hidden[layers - 3][0]], dim=-1)
    features = CachedTarget(model, taken, 64).prefill(PROMPT, Clock()).features
    assert torch.allclose(features, want, atol=1e-4)


def test_d_t2_a_tap_is_the_output_of_that_layer(tmp_path: Path) -> None:
    model, theirs = both(tmp_path / "target", "qwen3")
    taps = formats.tapped_layers({"num_hidden_layers": 3, "dflash_config": {}}, model.decoder.config)
    assert taps == (1, 4, 6)
    hidden = theirs(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states
    features = CachedTarget(model, [i + 1 for i in taps], 64).prefill(PROMPT, Clock()).features
    assert torch.allclose(features, torch.cat([hidden[i + 1][0] for i in taps], dim=-1), atol=1e-4)


# Few rows, and many.


def test_few_rows_and_many_give_the_same_and_nothing_lies_in_memory_twice() -> None:
    """One to three rows read the plain weight, more a packed one; fused projections are made of the layers' own."""
    torch.manual_seed(0)
    layer = MLP(32, 48)
    x = torch.randn(1, 8, 32)
    want = layer(x)
    speed_up(layer)
    assert layer.gate_up
    assert torch.allclose(layer(x), want, atol=1e-5)
    for rows in range(1, 8):
        assert torch.allclose(layer(x[:, :rows]), want[:, :rows], atol=1e-5)
    whole = layer.gate_up.plain.untyped_storage().data_ptr()
    assert {part.weight.untyped_storage().data_ptr() for part in (layer.gate_proj, layer.up_proj)} == {whole}


@pytest.mark.parametrize("kind", [Packed, IntelPacked])
@pytest.mark.parametrize("shape", [(960, 576), (33, 20), (5000, 64)])
def test_a_packed_weight_serves_any_number_of_rows(kind: type[Packed], shape: tuple[int, int]) -> None:
    """On any processor that has the kernel: only which of the two is quicker depends on it."""
    torch.manual_seed(0)
    weight, bias = torch.randn(shape), torch.randn(shape[0])
    packed = kind(weight, bias)
    assert packed.agrees()
    for rows in [*range(1, 30), 63, 64, 65, 130]:
        x = torch.randn(2, rows, shape[1])[1:]
        assert torch.allclose(packed(x), x @ weight.T + bias, rtol=1e-4, atol=1e-3)
        assert packed(x).shape == (1, rows, shape[0])


def test_a_kernel_that_errs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packed, "product", lambda self, x, rows: x @ self.plain.T + 1)
    monkeypatch.setattr(layers, "on_intel", lambda: False)
    assert layers.pack(torch.randn(8, 8)) is None


@pytest.mark.parametrize("size", [0.0, 1e-6, 1.0, 3e4])
def test_the_quick_norm_is_the_norm(size: float) -> None:
    """Also for rows of nothing, of almost nothing, and as large as the first token's in a deep layer."""
    torch.manual_seed(0)
    norm = RMSNorm(48, 1e-5)
    norm.weight.copy_(torch.rand(48))
    x = size * torch.randn(1, 30, 48)  # more rows than one call serves (`models.fused`)
    want = norm(x)
    speed_up(norm)
    assert norm.quick
    assert torch.allclose(norm(x), want, rtol=1e-5, atol=1e-7)


def test_a_mask_is_repeated_for_the_heads_that_share_keys() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    one, three = additive(mask, 2, torch.float32), additive(mask, 2, torch.float32, group=3)
    assert one is not None
    assert three is not None
    assert (one[0, 0] == 0).tolist() == [[True, True, True, False], [True] * 4]
    assert torch.equal(three, torch.cat([one] * 3, dim=2))


# Rotary angles.


def test_d_t10_halves_are_turned_against_each_other(target: DecoderConfig) -> None:
    """NeoX pairing: entry i goes with entry i + d/2, not with its neighbour."""
    x = torch.tensor([1.0, 0.0, 0.0, 0.0]).view(1, 1, 1, 4)
    cos, sin = Rope(default_inv_freq(100.0, 4)).angles(torch.tensor([[3]]), torch.float32)
    assert torch.allclose(rotate(x, cos, sin).flatten(), torch.tensor([math.cos(3), 0, math.sin(3), 0]), atol=1e-6)
    second = torch.tensor([0.0, 1.0, 0.0, 0.0]).view(1, 1, 1, 4)
    turned = rotate(second, cos, sin).flatten()
    assert torch.allclose(turned, torch.tensor([0, math.cos(0.3), 0, math.sin(0.3)]), atol=1e-6)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def test_llama3_scaling_is_the_formula() -> None:
    """Long waves are slowed by the factor, short ones left, those between blended; written out by hand."""
    limit, theta, dim = 8192, 500000.0, 128
    config = {"hidden_size": 4096, "num_attention_heads": 32, "head_dim": dim, "max_position_embeddings": 131072}
    scaling = LLAMA3 | {"original_max_position_embeddings": limit}
    got = read_rope(config | {"rope_theta": theta, "rope_scaling": scaling})
    for i, found_one in enumerate(got.inv_freq):
        frequency = theta ** (-2 * i / dim)
        wave = 2 * math.pi / frequency
        blend = (limit / wave - 1.0) / (4.0 - 1.0)
        share_kept = min(1.0, max(0.0, blend))
        assert found_one == pytest.approx(frequency * (share_kept + (1 - share_kept) / 8.0), rel=1e-4)
    assert len(got.inv_freq) == 64
    assert got.scale == 1.0


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "dflash"])
def test_a_drafter_may_be_scaled_as_its_target_is(target: DecoderConfig, kind: str) -> None:
    config, tensors = parts(kind)
    scaling = LLAMA3 | {"original_max_position_embeddings": 32}
    scaled = formats.parse(config | {"rope_scaling": scaling}, dict(tensors), target).config.rope
    new = {"rope_theta": None, "rope_parameters": scaling | {"rope_theta": config["rope_theta"]}}
    assert formats.parse(config | new, dict(tensors), target).config.rope == scaled
    assert scaled != formats.parse(config, dict(tensors), target).config.rope


def test_an_old_llama_target_means_ten_thousand(tmp_path: Path) -> None:
    """Vicuna's config.json has no rope_theta."""
    folder = toy_folder(tmp_path / "target")
    config = json.loads((folder / "config.json").read_text())
    del config["rope_theta"]
    (folder / "config.json").write_text(json.dumps(config))
    assert load_target(str(folder), "cpu").decoder.config.rope.inv_freq == default_inv_freq(10000.0, 8)


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_e_b24_a_head_goes_on_past_its_own_context(target: DecoderConfig, kind: str) -> None:
    """Only distances matter to RoPE: far behind its max_position_embeddings a head must say what it says at 0."""
    config, tensors = parts(kind)
    head = formats.parse(config | {"max_position_embeddings": 16}, tensors, target)
    assert isinstance(head, EagleHead | Eagle3Head)
    rng = torch.Generator().manual_seed(1)
    embedded, features = torch.randn(1, 5, HIDDEN, generator=rng), torch.randn(1, 5, HIDDEN, generator=rng)
    near = head(embedded, features, torch.arange(5)[None])
    far = head(embedded, features, torch.arange(5)[None] + 9001)
    assert torch.allclose(near, far, atol=2e-3)


# What a head feeds back.


def test_e_b16_norm_output_is_fed_back_after_the_norm_and_read_once(target: DecoderConfig) -> None:
    config, tensors = parts("eagle3")
    tensors["norm.weight"] = torch.linspace(0.5, 2, HIDDEN)
    plain = formats.parse(config, dict(tensors), target)
    head = formats.parse(config | {"norm_output": True}, dict(tensors), target)
    assert isinstance(head, Eagle3Head)
    assert isinstance(plain, Eagle3Head)
    out = torch.randn(1, 4, HIDDEN, generator=torch.Generator().manual_seed(2))
    assert torch.equal(head.feedback(out), head.norm(out))
    assert torch.equal(plain.feedback(out), out)
    assert torch.equal(head.logits(out, head.lm_head), plain.logits(out, plain.lm_head))


def test_e_b16_what_specforge_meant_by_it_is_said(tmp_path: Path) -> None:
    config, tensors = parts("eagle3")
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config | {"norm_output": True}))
    assert any("SpecForge before" in line for line in found.look(tmp_path).lines)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert not any("SpecForge before" in line for line in found.look(tmp_path).lines)


# Blocks.


def test_d_t11_a_slot_stands_where_its_token_will(monkeypatch: pytest.MonkeyPatch) -> None:
    """Context row p at position p, slot j at start + j, over all rounds, without a gap."""
    model = load_target(str(GOLDEN / "dflash_qwen3/target"), "cpu")
    network = load_network(model, str(GOLDEN / "dflash_qwen3/draft"))
    recipe, seen = methods.find("dflash"), []
    forward = DFlashHead.forward

    def spy(self: DFlashHead, block: Tensor, context: Tensor, positions: Tensor, *rest: Any) -> list[Tensor]:
        seen.append((context.shape[1], positions[0].tolist()))
        return forward(self, block, context, positions, *rest)

    monkeypatch.setattr(DFlashHead, "forward", spy)
    drafter = recipe.build(model, network, recipe.settle({"block": 8}), Sampling())
    plan = Plan(PROMPT, 20, 512)
    text = list(PROMPT)
    for step in decode(CachedTarget(model, drafter.layers, 64), drafter, plan, Clock()):
        if step.passes and len(text) > len(PROMPT):
            rows, positions = seen[-1]
            start = len(text) - 1  # where the root stands
            assert positions == list(range(start - rows, start + len(positions) - rows))
        text += step.committed
    assert len(seen) >= 3


# Tables a drafter brings along.


def with_head(words: list[int]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A DFlash drafter as speculators writes it: nested, ids l + 1, a head of its own over `words`."""
    config, tensors = parts("dflash")
    inner = config.pop("dflash_config")
    outer = {"speculators_model_type": "dflash", "draft_vocab_size": len(words), "block_size": config.pop("block_size")}
    outer |= {"aux_hidden_state_layer_ids": [i + 1 for i in inner["target_layer_ids"]]}
    outer |= {"mask_token_id": inner["mask_token_id"], "transformer_layer_config": config}
    rng = torch.Generator().manual_seed(5)
    tensors["lm_head.weight"] = torch.randn(len(words), HIDDEN, generator=rng)
    tensors["d2t"] = torch.tensor(words) - torch.arange(len(words))
    tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool)
    tensors["t2d"][words] = True
    return outer, tensors


def test_a_speculators_block_has_words_of_its_own(target: DecoderConfig, tmp_path: Path) -> None:
    words = [0, 3, 4, 17, 40, 63]
    config, tensors = with_head(words)
    head = formats.parse(config, dict(tensors), target)
    assert isinstance(head, DFlashHead)
    assert head.config.feature_layers == formats.parse(*parts("dflash"), target).config.feature_layers
    assert head.to_target(torch.arange(6)).tolist() == words
    out = torch.randn(3, HIDDEN, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(head.logits(out, toy_model().decoder.lm_head), head.norm(out) @ tensors["lm_head.weight"].T)
    with pytest.raises(FormatError, match="missing \\['d2t'\\]"):
        formats.parse(config, {name: t for name, t in tensors.items() if name != "d2t"}, target)


@pytest.mark.parametrize("key", ["dflash", "ddtree"])
def test_a_block_of_few_words_drafts_only_those_and_changes_no_text(tmp_path: Path, key: str) -> None:
    model, words = toy_model(), [0, 3, 4, 17, 40, 63]
    config, tensors = with_head(words)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    network = load_network(model, str(tmp_path))
    assert network.head_rows == 6
    recipe, plain = methods.find(key), methods.find("plain")
    runs = []
    for method, net in ((recipe, network), (plain, None)):
        drafter = method.build(model, net, method.settle({}), Sampling())
        steps = list(decode(CachedTarget(model, drafter.layers, 64), drafter, Plan(PROMPT, 20, 512), Clock()))
        runs.append([token for step in steps for token in step.committed])
        drafted = {token for step in steps[1:] for token in step.draft.tokens[1:]}
        assert drafted <= set(words)
        assert (len(drafted) > 1) == (net is not None)
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("asked", "run"), [(3, 3), (5, 8)])
def test_a_drafter_of_eight_layers_is_not_cut_at_five(asked: int, run: int) -> None:
    """The knob ends at five; stopping there would draft from a network nobody trained."""
    model, sizes = toy_model(), random_network("dflash", VOCAB, 3).config
    assert isinstance(sizes, DFlashConfig)
    head = DFlashHead(replace(sizes, layers=8, windows=(0,) * 8, causal=(False,) * 8))
    drafter = BlockDrafter(model, Network(head, "deep", ""), 8, asked, guesses=False)
    assert drafter.depth == run


def test_a_full_head_that_copies_the_targets_is_let_go(target: DecoderConfig) -> None:
    model = toy_model()
    config, tensors = with_head(list(range(VOCAB)))
    tensors["lm_head.weight"] = model.decoder.lm_head.weight.clone()
    head = formats.parse(config, tensors, target)
    share(head, model.decoder)
    assert isinstance(head, DFlashHead)
    assert (head.lm_head, head.d2t, head.config.draft_vocab) == (None, None, 0)


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "dflash"])
def test_an_embedding_of_its_own_is_used_and_a_copy_is_not_kept(target: DecoderConfig, kind: str) -> None:
    model = toy_model()
    table, (config, tensors) = model.decoder.model.embed_tokens, parts(kind)
    own = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(8))
    for rows, kept in ((own, True), (table.weight.clone(), False)):
        head = formats.parse(config, dict(tensors) | {"embed_tokens.weight": rows}, target)
        share(head, model.decoder)
        assert (head.words(table) is not table) == kept
        assert torch.equal(head.words(table).weight, rows)
    with pytest.raises(FormatError, match="embedding has 63 rows and its vocabulary 64 tokens"):
        formats.parse(config, dict(tensors) | {"embed_tokens.weight": own[1:].clone()}, target)


def test_a_narrow_head_needs_an_embedding_of_its_own(target: DecoderConfig) -> None:
    """target_hidden_size: fc reads the target's width and everything behind it has the head's."""
    config, tensors = parts("eagle3")
    wide = replace(target, hidden=48, attention=replace(target.attention, hidden=48))
    tensors["fc.weight"] = torch.randn(HIDDEN, 3 * 48)
    config["target_hidden_size"] = 48
    with pytest.raises(FormatError, match="needs an embedding of its own, and the file has none"):
        formats.parse(config, dict(tensors), wide)
    head = formats.parse(config, dict(tensors) | {"embed_tokens.weight": torch.randn(VOCAB, HIDDEN)}, wide)
    assert isinstance(head, Eagle3Head)
    assert head.fuse(torch.randn(1, 2, 3 * 48)).shape == (1, 2, HIDDEN)


# A sliding EAGLE-3 head.


def test_a_sliding_head_sees_its_window_and_no_further(target: DecoderConfig) -> None:
    config, tensors = parts("eagle3")
    slides = {"layer_types": ["sliding_attention"], "sliding_window": 4}
    head = formats.parse(config | slides, dict(tensors), target)
    assert isinstance(head, Eagle3Head)
    assert head.config.window == 4
    rng = torch.Generator().manual_seed(1)
    embedded, features = torch.randn(1, 9, HIDDEN, generator=rng), torch.randn(1, 9, HIDDEN, generator=rng)
    places = torch.arange(9)[None]
    whole = head(embedded, features, places)[0, -1]
    alone = head(embedded[:, 5:], features[:, 5:], places[:, :4])[0, -1]  # the last four; only distances matter
    assert torch.allclose(whole, alone, atol=1e-5)
    shorter = head(embedded[:, 6:], features[:, 6:], places[:, :3])[0, -1]
    assert not torch.allclose(whole, shorter, atol=1e-4)
    cache = new_cache(head, 9, embedded)
    head(embedded[:, :8], features[:, :8], places[:, :8], cache)
    assert torch.allclose(head(embedded[:, 8:], features[:, 8:], places[:, 8:], cache)[0, -1], whole, atol=1e-5)


def test_a_sliding_block_may_look_both_ways_in_speculators(target: DecoderConfig) -> None:
    config, tensors = with_head(list(range(VOCAB)))
    config["transformer_layer_config"] |= {"layer_types": ["sliding_attention"] * 2, "sliding_window": 6}
    for stated, causal in ({}, True), ({"sliding_window_non_causal": True}, False):
        sizes = formats.parse(config | stated, dict(tensors), target).config
        assert isinstance(sizes, DFlashConfig)
        assert sizes.causal == (causal, causal)


# What a folder says about itself, and code in it.


def test_a_config_for_another_kind_of_weights_is_refused(target: DecoderConfig) -> None:
    with pytest.raises(FormatError, match="describes a drafter of kind dflash, the weights are of kind eagle3"):
        formats.parse(parts("dflash")[0], parts("eagle3")[1], target)
    config, tensors = parts("dflash")
    with pytest.raises(FormatError, match="trained for a number of layers of 36, the target has 4"):
        formats.parse(config | {"num_target_layers": 36}, tensors, target)


def test_auto_map_is_ignored_and_its_code_never_run(tmp_path: Path, target: DecoderConfig) -> None:
    """In a drafter's config and in a target's tokenizer alike."""
    mark = tmp_path / "ran"
    code = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"
    config, tensors = parts("dflash")
    folder = tmp_path / "drafter"
    folder.mkdir()
    (folder / "dflash.py").write_text(code)
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "dflash.DFlashDraftModel"}}))
    save_file(tensors, folder / "model.safetensors")
    formats.load(folder, target)
    assert "its auto_map points at code, which is not run" in found.look(folder).lines
    model = toy_folder(tmp_path / "target")
    (model / "dflash.py").write_text(code)
    own = json.loads((model / "tokenizer_config.json").read_text())
    own["auto_map"] = {"AutoTokenizer": ["dflash.Slow", "dflash.Fast"]}
    (model / "tokenizer_config.json").write_text(json.dumps(own))
    Tokenizer.load(model)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("eagle2/draft", "EAGLE drafter in the layout of SafeAILab"),
        ("eagle3/draft", "EAGLE-3 drafter in the layout of SafeAILab"),
        ("eagle3_speculators/plain", "EAGLE-3 drafter in the layout of speculators"),
        ("dflash_qwen3/draft", "DFlash drafter in the layout of z-lab or SpecForge"),
    ],
)
def test_a_folder_is_described(folder: str, said: str) -> None:
    lines = found.look(GOLDEN / folder).lines
    assert lines[0] == said
    assert "model.safetensors" in lines[1]


# Big files.


def test_a_stored_model_is_mapped_and_not_copied(tmp_path: Path) -> None:
    """In its own number type it takes no memory of this process that the file does not back."""
    folder = toy_folder(tmp_path / "target")
    tensors = {n: t.bfloat16() for n, t in load_file(folder / "model.safetensors").items()}
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": 400_000}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = torch.zeros(400_000, HIDDEN, dtype=torch.bfloat16)  # 25.6 MB each
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    before = anonymous_mb()
    model = load_target(str(folder), "cpu", "stored")
    assert model.decoder.dtype == torch.bfloat16
    assert anonymous_mb() - before < 12
    assert files.stored_dtype(tensors) == torch.bfloat16


def anonymous_mb() -> float:
    """Memory of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def test_a_tied_target_keeps_one_table(tmp_path: Path) -> None:
    folder = toy_folder(tmp_path / "target")
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    decoder = load_target(str(folder), "cpu", "bf16").decoder
    assert decoder.lm_head.weight.data_ptr() == decoder.model.embed_tokens.weight.data_ptr()
