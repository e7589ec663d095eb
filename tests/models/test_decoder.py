"""The decoder is transformers' own model number for number, and a tree under its mask is its paths run alone."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from models import files
from models.decoder import ConfigError, Decoder, read_config
from models.fetch import fetch_embedded
from models.layers import speed_up
from tests.toy import toy_model

BASE = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "rope_theta": 10000.0},
    "llama wide heads": {"model_type": "llama", "rope_theta": 50000.0, "head_dim": 12},
    "llama biases": {"model_type": "llama", "rope_theta": 10000.0, "attention_bias": True},
    "llama tied, no sharing": {
        "model_type": "llama",
        "rope_theta": 500.0,
        "tie_word_embeddings": True,
        "num_key_value_heads": 4,
    },
    "llama3 rope": {"model_type": "llama", "rope_theta": 10000.0, "rope_scaling": LLAMA3},
    "llama3 rope, new schema": {"model_type": "llama", "rope_parameters": {"rope_theta": 10000.0, **LLAMA3}},
    "qwen2 tied": {"model_type": "qwen2", "rope_theta": 1e6, "tie_word_embeddings": True},
    "qwen2, new schema": {"model_type": "qwen2", "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
    "qwen3": {"model_type": "qwen3", "rope_theta": 1e6, "head_dim": 16},
    "qwen3 biases": {"model_type": "qwen3", "rope_theta": 1e6, "head_dim": 8, "attention_bias": True},
}


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def theirs_of(config: dict[str, Any], seed: int = 0) -> Any:
    """transformers' model with random weights, norms and biases included."""
    torch.manual_seed(seed)
    kind = config["model_type"]
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).float().eval()
    assert theirs.config.model_type == kind
    for weight in theirs.parameters():
        wide = weight.dim() > 1
        weight.copy_(torch.randn_like(weight) * (1.2 / weight.shape[-1] ** 0.5 if wide else 0.2) + (not wide))
    return theirs


def ours_of(config: dict[str, Any], theirs: Any) -> Decoder:
    """Our decoder with the same weights."""
    tensors = theirs.state_dict()
    tensors.setdefault("lm_head.weight", tensors["model.embed_tokens.weight"])
    ours = Decoder(read_config(config))
    ours.load_state_dict(tensors)
    speed_up(ours)
    return ours.eval()


def positions_of(ids: Tensor) -> Tensor:
    return torch.arange(ids.shape[1]).expand_as(ids)


@pytest.mark.parametrize("name", SHAPES)
def test_logits_and_features_equal_transformers(name: str) -> None:
    config = BASE | SHAPES[name]
    theirs = theirs_of(config)
    ours = ours_of(config, theirs)
    ids = torch.randint(0, 96, (2, 100), generator=torch.Generator().manual_seed(1))
    want = theirs(ids, output_hidden_states=True)
    out = ours(ids, positions_of(ids), wanted=(0, 1, 2, 3))
    assert float((ours.lm_head(out.last) - want.logits).abs().max()) <= 1e-4
    assert float((out.features - torch.cat(want.hidden_states, dim=-1)).abs().max()) <= 1e-4
    assert float(want.logits.std()) > 0.5  # no comparison of zeros


def test_features_come_in_the_asked_order() -> None:
    decoder = toy_model().decoder
    ids = torch.tensor([[5, 9, 17]])
    one, other = (decoder(ids, positions_of(ids), wanted=wanted).features for wanted in ((1, 3), (3, 1)))
    assert torch.equal(one, torch.cat(other.chunk(2, dim=-1)[::-1], dim=-1))


def test_the_real_target_equals_transformers() -> None:
    folder = fetch_embedded()
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ours = ours_of(files.read_json(folder / "config.json"), theirs)
    ids = torch.randint(0, 49152, (1, 48), generator=torch.Generator().manual_seed(0))
    want = theirs(ids, output_hidden_states=True)
    out = ours(ids, positions_of(ids), wanted=(2, 15, 27, 30))
    assert float((ours.lm_head(out.last) - want.logits).abs().max()) <= 1e-3
    features = torch.cat([want.hidden_states[i] for i in (2, 15, 27, 30)], dim=-1)
    assert float((out.features - features).abs().max() / features.abs().max()) <= 1e-5


def test_left_padding_changes_nothing() -> None:
    decoder = toy_model().decoder
    short, long = [7, 3, 60], [11, 2, 35, 8, 41, 22]
    pad = len(long) - len(short)
    ids = torch.tensor([[0] * pad + short, long])
    positions = torch.tensor([[0] * pad + list(range(len(short))), list(range(len(long)))])
    mask = torch.ones(2, len(long), len(long), dtype=torch.bool).tril()
    mask[0, :, :pad] = False
    batch = decoder(ids, positions, mask=mask).last
    alone = decoder(torch.tensor([short]), torch.arange(len(short))[None]).last
    assert torch.allclose(batch[0, pad:], alone[0], atol=1e-5)
    assert torch.allclose(batch[1], decoder(ids[1:], positions[1:]).last[0], atol=1e-5)


def test_a_batch_continues_behind_its_padded_cache() -> None:
    decoder = toy_model().decoder
    rows = [[0, 0, 7, 3, 60, 19], [11, 2, 35, 8, 41, 22]]
    ids, positions = torch.tensor(rows), torch.tensor([[0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]])
    seen = torch.ones(2, 6, 6, dtype=torch.bool).tril()
    seen[0, :, :2] = False
    cache = decoder.new_cache(8, batch=2)
    decoder(ids[:, :4], positions[:, :4], cache, seen[:, :4, :4])
    late = decoder(ids[:, 4:], positions[:, 4:], cache, seen[:, 4:]).last
    assert torch.allclose(late, decoder(ids, positions, mask=seen).last[:, 4:], atol=1e-5)


def random_tree(nodes: int, rng: random.Random) -> list[int]:
    """Parents of a random tree; every node hangs on any earlier one."""
    return [-1, *(rng.randrange(i) for i in range(1, nodes))]


def path_to(node: int, parents: list[int]) -> list[int]:
    path = [node]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


@pytest.mark.parametrize("seed", range(8))
def test_a_tree_under_its_mask_is_its_paths_run_alone(seed: int) -> None:
    rng, decoder = random.Random(seed), toy_model().decoder
    prefix = [rng.randrange(64) for _ in range(rng.choice([1, 2, 13]))]
    parents = random_tree(rng.choice([2, 9, 24]), rng)
    tokens = [rng.randrange(64) for _ in parents]
    paths = [path_to(node, parents) for node in range(len(parents))]
    mask = torch.tensor([[i in path for i in range(len(parents))] for path in paths])
    cache = decoder.new_cache(64)
    decoder(torch.tensor([prefix]), torch.arange(len(prefix))[None], cache)
    depth = torch.tensor([[len(prefix) + len(path) - 1 for path in paths]])
    together = decoder(torch.tensor([tokens]), depth, cache, mask, wanted=(1, 2))
    for node, path in enumerate(paths):
        ids = torch.tensor([prefix + [tokens[i] for i in path]])
        alone = decoder(ids, positions_of(ids), wanted=(1, 2))
        assert torch.allclose(together.last[0, node], alone.last[0, -1], atol=1e-4)
        assert torch.allclose(together.features[0, node], alone.features[0, -1], atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near(dtype: torch.dtype) -> None:
    decoder = toy_model().decoder
    half = Decoder(decoder.config)
    half.load_state_dict(decoder.state_dict())
    ids = torch.tensor([[5, 9, 17, 60, 2]])
    out = half.to(dtype)(ids, positions_of(ids)).last
    assert out.dtype == dtype
    assert torch.allclose(out.float(), decoder(ids, positions_of(ids)).last, atol=0.15)


GOOD = BASE | SHAPES["llama"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "mamba"}, "'mamba' is not supported: use one of llama, qwen2, qwen3"),
        ({"model_type": None}, "is not supported"),
        ({"vocab_size": None}, "no 'vocab_size'"),
        ({"num_hidden_layers": None}, "no 'num_hidden_layers'"),
        ({"rms_norm_eps": None}, "no 'rms_norm_eps'"),
        ({"rope_theta": None, "vocab_size": 128256}, "no rope_theta"),
        ({"rope_scaling": {"rope_type": "twisted"}}, "'twisted' is unknown"),
        ({"rope_parameters": {"a": {"rope_theta": 1.0}, "b": {"rope_theta": 2.0}}}, "differ between layer types"),
        ({"hidden_act": "gelu"}, "'gelu' is not supported"),
        ({"use_sliding_window": True, "sliding_window": 128}, "sliding-window targets are not supported"),
    ],
)
def test_a_bad_config_is_refused_with_the_reason(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_config(GOOD | change)


@pytest.mark.parametrize(
    "stated",
    [
        {"rope_theta": 5e4, "rope_scaling": None},
        {"rope_theta": None, "rope_parameters": {"rope_theta": 5e4, "rope_type": "default"}},
        {"rope_theta": None, "rope_parameters": {"full_attention": {"rope_theta": 5e4, "rope_type": "default"}}},
    ],
)
def test_every_rope_schema_gives_the_same_angles(stated: dict[str, Any]) -> None:
    """Half-split pairs: entry i turns with entry i + d/2, by position · theta^(-2i/d)."""
    cos, sin = read_config(GOOD | stated).rope.angles(torch.tensor([[3]]), torch.float32)
    turn = torch.tensor([3 * 5e4 ** (-2 * i / 8) for i in range(4)]).repeat(2)
    assert torch.allclose(cos[0, 0, 0], turn.cos(), atol=1e-6)
    assert torch.allclose(sin[0, 0, 0], turn.sin(), atol=1e-6)
