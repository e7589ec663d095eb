"""One dense decoder for Llama, Qwen2 and Qwen3 shapes: ids, positions, a mask and a cache go in; the last hidden
rows and the asked-for layers come out. The target runs on it, on CPU in fp32 and on CUDA in half precision."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from models.cache import KVCache
from models.graphs import playing
from models.layers import (
    MLP,
    Attention,
    AttentionShape,
    Linear,
    RMSNorm,
    Rope,
    additive,
    causal,
    default_inv_freq,
)

FAMILIES = ("llama", "qwen2", "qwen3")
OLD_LLAMA_THETA, OLD_LLAMA_VOCAB = 10000.0, 65536  # Llama 1 and 2, Vicuna among them, leave the base out


class ConfigError(ValueError):
    """A config.json that cannot be used; the message says which field and what to do."""


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder, read from a Hugging Face config.json by `read_config`."""

    family: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    eps: float
    rope: Rope
    max_positions: int
    tied: bool
    attention: AttentionShape


def need(config: dict[str, Any], name: str) -> Any:
    if config.get(name) is None:
        raise ConfigError(f"config.json has no {name!r}: take the file that belongs to the weights")
    return config[name]


MOST = {"num_hidden_layers": 1000, "num_attention_heads": 4096, "num_key_value_heads": 4096, "head_dim": 4096}


def whole(config: dict[str, Any], name: str) -> int:
    """A whole number from 1 on. The upper end is beyond every real model: a damaged size must not be allocated."""
    value, most = need(config, name), MOST.get(name, 2**24)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(f"config.json says {name} {value!r}: it must be a whole number from 1 to {most}")
    return value


def positive(name: str, value: Any) -> float:
    """A finite number above zero."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):
        raise ConfigError(f"config.json says {name} {value!r}: it must be a number above zero")
    return float(value)


def eps_of(config: dict[str, Any]) -> float:
    return positive("rms_norm_eps", need(config, "rms_norm_eps"))


def table(config: dict[str, Any], name: str) -> dict[str, Any]:
    """A group of fields, empty where it is absent or null."""
    found = config.get(name) or {}
    if not isinstance(found, dict):
        raise ConfigError(f"config.json says {name} {found!r}: it must be an object with fields")
    return found


def head_dim_of(config: dict[str, Any]) -> int:
    """head_dim is its own field in Qwen3 and newer Llama files; older files leave it to hidden / heads."""
    if config.get("head_dim"):
        return whole(config, "head_dim")
    return whole(config, "hidden_size") // whole(config, "num_attention_heads")


def rope_parameters(config: dict[str, Any], default_theta: float | None = None) -> dict[str, Any]:
    """Both schemas in one: `rope_theta` + `rope_scaling` (transformers 4) and `rope_parameters` (5).

    A missing theta is an error unless the format defines one (EAGLE heads: 10000).
    """
    found = dict(table(config, "rope_scaling")) | one_rope(table(config, "rope_parameters"))
    found.setdefault("rope_type", found.pop("type", "default"))
    theta = found.get("rope_theta") or config.get("rope_theta") or default_theta
    if theta is None:
        raise ConfigError("config.json names no rope_theta: write the base the weights were trained with into it")
    return found | {"rope_theta": positive("rope_theta", theta)}


def one_rope(parameters: dict[str, Any]) -> dict[str, Any]:
    """`rope_parameters`, which may hold one set per layer type; we turn all layers alike."""
    sets = [value for value in parameters.values() if isinstance(value, dict)]
    if any(other != sets[0] for other in sets):
        raise ConfigError("rope_parameters differ between layer types: use a model that turns all layers alike")
    return dict(sets[0] if sets else parameters)


def read_rope(config: dict[str, Any], default_theta: float | None = None) -> Rope:
    parameters = rope_parameters(config, default_theta)
    head_dim = head_dim_of(config)
    if parameters["rope_type"] == "default":
        return Rope(default_inv_freq(parameters["rope_theta"], head_dim))
    return scaled_rope(config, parameters, head_dim)


def scaled_rope(config: dict[str, Any], parameters: dict[str, Any], head_dim: int) -> Rope:
    """llama3, yarn, linear …: transformers knows the formulas, so ask it."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = parameters["rope_type"]
    if not isinstance(kind, str) or kind not in ROPE_INIT_FUNCTIONS:
        raise ConfigError(f"rope_type {kind!r} is unknown to the installed transformers")
    try:
        stand_in = LlamaConfig(
            hidden_size=config["hidden_size"],
            num_attention_heads=config["num_attention_heads"],
            head_dim=head_dim,
            max_position_embeddings=config.get("max_position_embeddings", 2048),
            rope_parameters=parameters,
        )
        inv_freq, scale = ROPE_INIT_FUNCTIONS[kind](stand_in, torch.device("cpu"))
    except Exception as error:  # whatever a wrong field makes of the formulas
        raise ConfigError(f"the {kind} rope scaling in config.json cannot be used: {str(error)[:160]}") from error
    return Rope(tuple(inv_freq.tolist()), scale)


def attention_shape(config: dict[str, Any], family: str) -> AttentionShape:
    heads = whole(config, "num_attention_heads")
    kv_heads = whole(config, "num_key_value_heads") if config.get("num_key_value_heads") else heads
    if heads % kv_heads:
        raise ConfigError(f"config.json shares {kv_heads} key heads among {heads} heads, which does not come out even")
    return AttentionShape(
        input=whole(config, "hidden_size"),
        hidden=config["hidden_size"],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim_of(config),
        eps=eps_of(config),
        qkv_bias=family == "qwen2" or bool(config.get("attention_bias")),
        o_bias=family != "qwen2" and bool(config.get("attention_bias")),
        qk_norm=family == "qwen3",
    )


def read_config(config: dict[str, Any]) -> DecoderConfig:
    """A Hugging Face config.json of a Llama, Qwen2 or Qwen3 model → `DecoderConfig`; raises ConfigError."""
    family = config.get("model_type", "")
    if family not in FAMILIES:
        raise ConfigError(f"model_type {family!r} is not supported: use one of {', '.join(FAMILIES)}")
    if config.get("use_sliding_window") and config.get("sliding_window"):
        raise ConfigError("sliding-window targets are not supported: use one with full attention")
    if config.get("hidden_act", "silu") != "silu":
        raise ConfigError(f"hidden_act {config['hidden_act']!r} is not supported: use a model with silu")
    if config.get("quantization_config"):
        raise ConfigError("quantised weights are not supported: use the model in float16 or bfloat16, or as GGUF")
    shape = attention_shape(config, family)
    old = family == "llama" and whole(config, "vocab_size") <= OLD_LLAMA_VOCAB
    return DecoderConfig(
        family=family,
        vocab=whole(config, "vocab_size"),
        hidden=shape.hidden,
        layers=whole(config, "num_hidden_layers"),
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        ffn=whole(config, "intermediate_size"),
        eps=shape.eps,
        rope=read_rope(config, OLD_LLAMA_THETA if old else None),
        max_positions=whole(config, "max_position_embeddings"),
        tied=bool(config.get("tie_word_embeddings")),
        attention=shape,
    )


class Layer(nn.Module):
    """Pre-norm attention and MLP with residual adds; `context` rows (DFlash) skip the norm and give keys and values."""

    def __init__(self, shape: AttentionShape, ffn: int):
        super().__init__()
        self.input_layernorm = RMSNorm(shape.input, shape.eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.mlp = MLP(shape.hidden, ffn)

    def forward(
        self,
        x: Tensor,
        angles: tuple[Tensor, Tensor],
        scores: Tensor | None,
        cache: KVCache | None,
        index: int,
        context: Tensor | None = None,
    ) -> Tensor:
        rows = self.input_layernorm(x)
        lent = 0 if context is None else context.shape[1]
        if context is not None:
            rows = torch.cat([context, rows], dim=1)
        x = x + self.self_attn(rows, *angles, scores, cache, index, lent)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(Layer(config.attention, config.ffn) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.eps)


@dataclass
class Output:
    """`last` [B, n, H]: after the final norm, what the LM head reads. `features` [B, n, wanted · H], in asked order."""

    last: Tensor
    features: Tensor


class Decoder(nn.Module):
    """Parameter names are Hugging Face's, so a checkpoint's state dict loads as it is."""

    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.config = config
        self.model = Body(config)
        self.lm_head = Linear(config.hidden, config.vocab, bias=False)
        if config.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    @property
    def device(self) -> torch.device:
        return self.model.embed_tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.embed_tokens.weight.dtype

    def new_cache(self, capacity: int, batch: int = 1) -> KVCache:
        c = self.config
        return KVCache(c.layers, c.kv_heads, c.head_dim, capacity, batch=batch, dtype=self.dtype, device=self.device)

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        cache: KVCache | None = None,
        mask: Tensor | None = None,
        wanted: Sequence[int] = (),
    ) -> Output:
        """ids, positions [B, n] → Output. The n new rows are appended to `cache`.

        mask: True = visible, [n, n] or [B, n, n] among the new rows (the whole past is visible), or
        [B, n, past + n]; None = causal. wanted: indices as in Hugging Face's `hidden_states`: 0 = embedding,
        i = output of layer i - 1 (residual stream), `layers` = after the final norm.
        """
        if (fixed := playing(cache, ids.shape[1])) and (mask is None or mask.dim() == 2):
            work = partial(self.rows, tuple(wanted))
            return Output(*fixed.through(("target", tuple(wanted)), work, [ids, positions], mask))
        return Output(*self.rows(wanted, ids, positions, cache, mask))

    def rows(
        self, wanted: Sequence[int], ids: Tensor, positions: Tensor, cache: KVCache | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The pass itself: `last` and `features`."""
        past = cache.length if cache is not None else 0
        x = self.model.embed_tokens(ids)
        angles = self.config.rope.angles(positions, x.dtype)
        if mask is None:
            mask = causal(ids.shape[1], past, ids.device)
        scores = additive(mask, past, x.dtype, self.config.attention.group)
        taken = {0: x} if 0 in wanted else {}
        for i, layer in enumerate(self.model.layers):
            x = layer(x, angles, scores, cache, i)
            if i + 1 in wanted:
                taken[i + 1] = x
        if cache is not None:
            cache.advance(ids.shape[1])
        last = self.model.norm(x)
        taken[self.config.layers] = last
        return last, torch.cat([taken[w] for w in wanted], dim=-1) if wanted else last[..., :0]
