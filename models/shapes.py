"""Pairs of published size with random weights: what a pass costs depends on its sizes, not on what the weights know."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from models.decoder import Decoder, DecoderConfig, read_config
from models.heads import DFlashConfig, DFlashHead, DrafterNetwork, Eagle3Config, Eagle3Head, EagleConfig, EagleHead
from models.layers import speed_up
from models.load import LoadError, Model, Network, finish, pick_device, pick_dtype
from models.memory import ROOM, copies, free_bytes

# The sizes in the targets' own config.json. Rope scaling is left out: it changes angles, not time.
QWEN3 = {"model_type": "qwen3", "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
QWEN3 |= {"num_hidden_layers": 36, "vocab_size": 151936, "rms_norm_eps": 1e-6, "rope_theta": 1e6}
QWEN3 |= {"max_position_embeddings": 40960}
LLAMA3 = {"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32}
LLAMA3 |= {"vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "max_position_embeddings": 131072}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-4b": {**QWEN3, "hidden_size": 2560, "intermediate_size": 9728, "tie_word_embeddings": True},
    "qwen3-8b": {**QWEN3, "hidden_size": 4096, "intermediate_size": 12288},
    "llama3.1-8b": {**LLAMA3, "hidden_size": 4096, "intermediate_size": 14336},
}
TITLES = {"qwen3-4b": "Qwen3-4B", "qwen3-8b": "Qwen3-8B", "llama3.1-8b": "Llama-3.1-8B"}

KINDS = ("eagle", "eagle3", "dflash")
DRAFT_VOCAB = 32000  # EAGLE-3's published heads
DRAFT_LAYERS, TAPS, BLOCK = 5, 5, 16  # DFlash's published drafters
TILE = 2**20  # random numbers repeated until a weight is full


class TooBig(LoadError):
    """A shape that does not fit into memory; sizes in GB."""

    def __init__(self, title: str, need: float, have: float):
        super().__init__(f"{title} needs {need:.1f} GB here and {have:.1f} GB are free: choose a smaller shape")
        self.title, self.need, self.have = title, need, have


def network_module(kind: str, c: DecoderConfig) -> DrafterNetwork:
    """An empty drafter of that kind for a target of config `c`, in its paper's proportions."""
    if kind == "eagle":
        shape = replace(c.attention, input=c.hidden, qk_norm=False, qkv_bias=False)
        return EagleHead(EagleConfig(c.hidden, c.ffn, shape, c.rope, bias=True, feature_layers=(c.layers,)))
    if kind == "eagle3":
        shape = replace(c.attention, input=2 * c.hidden, qk_norm=False, qkv_bias=False)
        taps = tuple(min(tap, c.layers) for tap in (2, c.layers // 2, max(0, c.layers - 3)))
        words = min(DRAFT_VOCAB, c.vocab)
        return Eagle3Head(Eagle3Config(c.hidden, c.hidden, c.ffn, shape, c.rope, c.vocab, words, taps))
    taps = tuple(1 + i * (c.layers - 1) // TAPS for i in range(TAPS))
    shape = replace(c.attention, qk_norm=True)
    full, both_ways = (0,) * DRAFT_LAYERS, (False,) * DRAFT_LAYERS
    return DFlashHead(DFlashConfig(c.hidden, c.ffn, DRAFT_LAYERS, shape, c.rope, BLOCK, 0, taps, full, both_ways))


def fill(module: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Give a module without storage random weights: small enough to stay finite, and no two rows in one place."""
    module.to_empty(device=device)
    module.to(dtype)
    tile = torch.randn(TILE, device=device, dtype=torch.float32).mul_(0.02).to(dtype)
    with torch.no_grad():
        for weight in module.parameters():
            flat = weight.view(-1)
            for start in range(0, flat.numel(), TILE):
                part = flat[start : start + TILE]
                part.copy_(tile[: part.numel()])
        for buffer in module.buffers():
            buffer.zero_()


def random_network(kind: str, model: Model) -> Network:
    """A random drafter of that kind for `model`, where the model is."""
    with torch.device("meta"):
        module = network_module(kind, model.decoder.config)
    fill(module, model.device, model.decoder.dtype)
    return finish(module, model, f"random-{kind}", "")


def random_target(key: str, device: torch.device, dtype: torch.dtype, layers: int) -> Model:
    """A random target of the shape `key` with `layers` of its layers. Its embedding is its LM head's weight."""
    config = replace(read_config(SHAPES[key]), layers=layers)
    with torch.device("meta"):
        decoder = Decoder(config)
    del decoder.model.embed_tokens.weight
    decoder.model.embed_tokens.weight = nn.Parameter(torch.empty(0, device="meta"))
    fill(decoder, device, dtype)
    decoder.model.embed_tokens.weight = decoder.lm_head.weight
    decoder = decoder.eval().requires_grad_(False)
    speed_up(decoder)
    return Model(decoder, None, TITLES[key], "", frozenset())


def gigabytes(key: str, layers: int, device: torch.device, dtype: torch.dtype) -> float:
    """Memory of a random target of `layers` layers and its three drafters. Packed weights (CPU, fp32) count twice."""
    config = replace(read_config(SHAPES[key]), layers=layers)
    with torch.device("meta"):
        parts: list[nn.Module] = [Decoder(config), *(network_module(kind, config) for kind in KINDS)]
    numbers = sum(p.numel() for part in parts for p in part.parameters())
    numbers -= 0 if config.tied else config.vocab * config.hidden  # the embedding lives in the head
    return numbers * dtype.itemsize * copies(device, dtype) / 1e9


def free_gigabytes(device: torch.device) -> float:
    return free_bytes(device) / 1e9


def load_shape(key: str, device: str = "auto", dtype: str = "auto", whole: bool = False) -> Model:
    """A random target of the shape `key`. Number types are tried from the device's own down to bf16.

    With `whole` all its layers, or TooBig; else one layer, unless all of them fit on a GPU.
    """
    if key not in SHAPES:
        raise LoadError(f"there is no shape {key!r}: choose one of {', '.join(SHAPES)}")
    place, deep = pick_device(device), SHAPES[key]["num_hidden_layers"]
    first = pick_dtype(place, dtype)
    kinds = [first] if dtype != "auto" or first == torch.bfloat16 else [first, torch.bfloat16]
    depths = [deep] if whole else [deep, 1] if place.type == "cuda" else [1]
    have = free_gigabytes(place)
    for layers in depths:
        for kind in kinds:
            if gigabytes(key, layers, place, kind) <= ROOM * have:
                return random_target(key, place, kind, layers)
    raise TooBig(TITLES[key], gigabytes(key, depths[-1], place, kinds[-1]), have)
