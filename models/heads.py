"""The drafters' networks: EAGLE, EAGLE-3 and DFlash, with the parameter names of the published checkpoints.

Most own no copy of the target's embedding or LM head; whoever runs them passes embedded rows in and a head to `logits`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.cache import KVCache
from models.decoder import Layer
from models.graphs import PlayedCache, padded, playing, rounded
from models.layers import (
    MLP,
    Attention,
    AttentionShape,
    Linear,
    LMHead,
    RMSNorm,
    Rope,
    additive,
    causal,
)


class Rows(Protocol):
    """Where attention puts its keys and values: a KVCache, or in training something that autograd can follow."""

    length: int

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]: ...

    def advance(self, n: int) -> None: ...


@dataclass(frozen=True)
class EagleConfig:
    """EAGLE-1/2 head: one Llama layer behind fc(2H → H). `bias`: of fc; a config that is silent means True.
    own_embedding, here and below: rows of its own embedding, 0 = it reads the target's."""

    hidden: int
    ffn: int
    attention: AttentionShape
    rope: Rope
    bias: bool
    feature_layers: tuple[int, ...]
    own_embedding: int = 0


@dataclass(frozen=True)
class Eagle3Config:
    """EAGLE-3 head. Features of `feature_layers`, `target_hidden` wide, enter fc; the flags are speculators variants'.
    window: how far its attention looks back, 0 = all the way."""

    hidden: int
    target_hidden: int
    ffn: int
    attention: AttentionShape
    rope: Rope
    vocab: int
    draft_vocab: int
    feature_layers: tuple[int, ...]
    fc_bias: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    window: int = 0
    own_embedding: int = 0


@dataclass(frozen=True)
class DFlashConfig:
    """DFlash drafter. `feature_layers` are hidden_states indices (published layer ids + 1). windows[i]: sliding window
    of layer i, 0 = full attention. causal[i]: whether layer i may look only back inside the block. draft_vocab: rows of
    its own LM head (speculators writes one), 0 = the target's is used."""

    hidden: int
    ffn: int
    layers: int
    attention: AttentionShape
    rope: Rope
    block_size: int
    mask_token: int
    feature_layers: tuple[int, ...]
    windows: tuple[int, ...]
    causal: tuple[bool, ...]
    draft_vocab: int = 0
    own_embedding: int = 0


class Head(nn.Module):
    """What all drafters may bring along: an embedding of their own, of `own_embedding` rows."""

    embed_tokens: nn.Embedding | None

    def bring(self, rows: int, hidden: int) -> None:
        self.embed_tokens = nn.Embedding(rows, hidden) if rows else None

    def words(self, table: nn.Embedding) -> nn.Embedding:
        """Where its input rows come from: its own embedding if it brought one, else the target's `table`."""
        return self.embed_tokens or table


class EagleLayer(nn.Module):
    """A Llama layer without its input norm: the published head feeds fc's output straight into attention."""

    def __init__(self, config: EagleConfig):
        super().__init__()
        self.self_attn = Attention(config.attention)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.attention.eps)
        self.mlp = MLP(config.hidden, config.ffn)


class EagleHead(Head):
    """EAGLE-1/2 (arXiv 2401.15077 §4.1): (embedding of the next token, feature) → the next feature."""

    def __init__(self, config: EagleConfig):
        super().__init__()
        self.config = config
        self.fc = Linear(2 * config.hidden, config.hidden, bias=config.bias)
        self.layers = nn.ModuleList([EagleLayer(config)])
        self.bring(config.own_embedding, config.hidden)

    def fuse(self, features: Tensor) -> Tensor:
        """Target features [B, n, H] as the rows this head starts from: as they are."""
        return features

    def forward(
        self,
        embedded: Tensor,
        hidden: Tensor,
        positions: Tensor,
        cache: Rows | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """embedded, hidden [B, n, H]; row i pairs feature i with the embedding of token i + 1, at position i."""
        if fixed := playing(cache, embedded.shape[1]):
            return fixed.through("draft", self.rows, [embedded, hidden, positions], mask)[0]
        return self.rows(embedded, hidden, positions, cache, mask)[0]

    def rows(
        self, embedded: Tensor, hidden: Tensor, positions: Tensor, cache: Rows | None, mask: Tensor | None
    ) -> tuple[Tensor]:
        past = cache.length if cache is not None else 0
        x = self.fc(torch.cat([embedded, hidden], dim=-1))
        block: EagleLayer = self.layers[0]  # type: ignore[assignment]
        mask = causal(x.shape[1], past, x.device) if mask is None else mask
        scores = additive(mask, past, x.dtype, self.config.attention.group)
        angles = self.config.rope.angles(positions, x.dtype)
        x = x + block.self_attn(x, *angles, scores, cache, 0)
        if cache is not None:
            cache.advance(embedded.shape[1])
        return (x + block.mlp(block.post_attention_layernorm(x)),)

    def feedback(self, out: Tensor) -> Tensor:
        """What the next level starts from."""
        return out

    def logits(self, out: Tensor, lm_head: LMHead) -> Tensor:
        """The target's own LM head on the guessed feature."""
        return lm_head(out)

    def to_target(self, ids: Tensor) -> Tensor:
        """Draft ids → target ids: the same."""
        return ids


class Eagle3Layer(nn.Module):
    """The `midlayer`: attention reads [norm(embedding) | norm(hidden)], the residual is the un-normed hidden."""

    def __init__(self, config: Eagle3Config):
        super().__init__()
        hidden, eps = config.hidden, config.attention.eps
        self.hidden_norm = RMSNorm(hidden, eps)
        self.input_layernorm = RMSNorm(hidden, eps)
        self.self_attn = Attention(config.attention)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        self.mlp = MLP(hidden, config.ffn)


class Eagle3Head(Head):
    """EAGLE-3 (arXiv 2503.01840 §3): fused low, middle and high features, its own reduced LM head."""

    d2t: Tensor
    t2d: Tensor

    def __init__(self, config: Eagle3Config):
        super().__init__()
        self.config = config
        eps = config.attention.eps
        fused = len(config.feature_layers) * config.target_hidden
        self.fc = Linear(fused, config.hidden, bias=config.fc_bias)
        self.midlayer = Eagle3Layer(config)
        self.norm = RMSNorm(config.hidden, eps)
        self.lm_head = Linear(config.hidden, config.draft_vocab, bias=False)
        if config.norm_before_fc:
            self.input_norm = RMSNorm(fused, eps)
        if config.fc_norm:
            self.fc_norm = nn.ModuleList(RMSNorm(config.target_hidden, eps) for _ in config.feature_layers)
        self.register_buffer("d2t", torch.zeros(config.draft_vocab, dtype=torch.long))
        self.register_buffer("t2d", torch.zeros(config.vocab, dtype=torch.bool))
        self.bring(config.own_embedding, config.hidden)

    def fuse(self, features: Tensor) -> Tensor:
        """Target features [B, n, fused · H] → rows [B, n, H]."""
        if self.config.norm_before_fc:
            features = self.input_norm(features)
        if self.config.fc_norm:
            chunks = features.chunk(len(self.config.feature_layers), dim=-1)
            features = torch.cat([norm(c) for norm, c in zip(self.fc_norm, chunks, strict=True)], dim=-1)
        return self.fc(features)

    def forward(
        self,
        embedded: Tensor,
        hidden: Tensor,
        positions: Tensor,
        cache: Rows | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """As `EagleHead.forward`; returns the pre-norm output [B, n, H]."""
        fixed = playing(cache, embedded.shape[1])
        if fixed and not self.config.window:  # a window takes places in the cache for distances
            return fixed.through("draft", self.rows, [embedded, hidden, positions], mask)[0]
        return self.rows(embedded, hidden, positions, cache, mask)[0]

    def rows(
        self, embedded: Tensor, hidden: Tensor, positions: Tensor, cache: Rows | None, mask: Tensor | None
    ) -> tuple[Tensor]:
        past = cache.length if cache is not None else 0
        block = self.midlayer
        normed = block.hidden_norm(hidden)
        x = torch.cat([block.input_layernorm(embedded), normed], dim=-1)
        mask = causal(x.shape[1], past, x.device) if mask is None else mask
        if self.config.window:
            mask = within(self.config.window, positions[0], mask, past)
        scores = additive(mask, past, x.dtype, self.config.attention.group)
        angles = self.config.rope.angles(positions, x.dtype)
        residual = normed if self.config.norm_before_residual else hidden
        x = residual + block.self_attn(x, *angles, scores, cache, 0)
        if cache is not None:
            cache.advance(embedded.shape[1])
        return (x + block.mlp(block.post_attention_layernorm(x)),)

    def feedback(self, out: Tensor) -> Tensor:
        """What the next level starts from: pre-norm as published, post-norm in files that say `norm_output`."""
        return self.norm(out) if self.config.norm_output else out

    def logits(self, out: Tensor, lm_head: LMHead) -> Tensor:
        """Its own LM head, over the draft vocabulary; `lm_head` is the target's and not used."""
        return self.lm_head(self.norm(out))

    def to_target(self, ids: Tensor) -> Tensor:
        """Draft ids → target ids: d2t holds offsets."""
        return ids + self.d2t[ids]


class DFlashHead(Head):
    """DFlash (arXiv 2602.06036 §3): one bidirectional pass over [root, mask × (B - 1)] fills every slot at once."""

    d2t: Tensor | None

    def __init__(self, config: DFlashConfig):
        super().__init__()
        self.config = config
        eps = config.attention.eps
        self.fc = Linear(len(config.feature_layers) * config.hidden, config.hidden, bias=False)
        self.hidden_norm = RMSNorm(config.hidden, eps)
        self.layers = nn.ModuleList(Layer(config.attention, config.ffn) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, eps)
        self.lm_head = Linear(config.hidden, config.draft_vocab, bias=False) if config.draft_vocab else None
        self.register_buffer("d2t", torch.zeros(config.draft_vocab, dtype=torch.long) if config.draft_vocab else None)
        self.bring(config.own_embedding, config.hidden)

    def context(self, features: Tensor) -> Tensor:
        """Target features [B, c, features · H] → context rows [B, c, H], shared by all layers."""
        return self.hidden_norm(self.fc(features))

    def forward(
        self,
        block: Tensor,
        context: Tensor,
        positions: Tensor,
        cache: Rows | None = None,
        masks: Sequence[Tensor | None] | None = None,
        depth: int | None = None,
    ) -> list[Tensor]:
        """block [B, n, H] embedded slots, context [B, c, H] new context rows, positions [B, c + n] of both.

        Runs the first `depth` layers; returns each layer's output [B, n, H], before the final norm. Context and block
        keys join `cache`: crop the block's n rows off afterwards. masks: per layer, [n, past + c + n], True = visible.
        """
        if fixed := playing(cache, context.shape[1]):
            return self.filled(fixed, block, context, positions, masks or [None] * self.config.layers, depth)
        return list(self.rows(depth, block, context, positions, cache, masks))

    def remember(self, context: Tensor, positions: Tensor, cache: KVCache, depth: int | None = None) -> None:
        """Context rows [B, c, H] join `cache` at `positions` [B, c], without a block that looks at them yet."""
        angles = self.config.rope.angles(positions, context.dtype)
        for i, layer in enumerate(self.layers[:depth]):
            layer.self_attn.lend(context, *angles, cache, i)  # type: ignore[operator, union-attr]
        cache.advance(positions.shape[1])

    def filled(
        self,
        cache: PlayedCache,
        block: Tensor,
        context: Tensor,
        positions: Tensor,
        masks: Sequence[Tensor | None],
        depth: int | None,
    ) -> list[Tensor]:
        """In fixed shape: context rows that were added lie behind the block, where nobody looks."""
        new, slots, start = context.shape[1], block.shape[1], cache.length + context.shape[1]
        rows, end = rounded(new), start + slots
        cache.reserve(cache.length + rows + slots)
        places = torch.cat([cache.places(new, rows, slots), torch.arange(start, end, device=block.device)])
        positions = torch.cat([padded(positions[:, :new], rows), positions[:, new:]], dim=1)
        sees = torch.stack([cache.sees(slots, end, mask) for mask in masks])
        inputs = [block, padded(context, rows), positions, places, sees]
        outputs = cache.played(("block", depth), partial(self.rows, depth), inputs)
        cache.advance(new + slots)
        return list(outputs)

    def rows(
        self,
        depth: int | None,
        block: Tensor,
        context: Tensor,
        positions: Tensor,
        cache: Rows | None,
        masks: Sequence[Tensor | None] | Tensor | None,
    ) -> tuple[Tensor, ...]:
        past = cache.length if cache is not None else 0
        angles = self.config.rope.angles(positions, block.dtype)
        masks = [None] * self.config.layers if masks is None else masks
        outputs = []
        for i, layer in enumerate(self.layers[:depth]):
            scores = additive(masks[i], past, block.dtype, self.config.attention.group)
            block = layer(block, angles, scores, cache, i, context)
            outputs.append(block)
        if cache is not None:
            cache.advance(positions.shape[1])
        return tuple(outputs)

    def logits(self, out: Tensor, lm_head: LMHead) -> Tensor:
        """A layer's output through the drafter's own norm and the target's LM head, or its own where it has one."""
        return (self.lm_head or lm_head)(self.norm(out))

    def to_target(self, ids: Tensor) -> Tensor:
        """Draft ids → target ids: the same, but for a head of fewer words."""
        return ids if self.d2t is None else ids + self.d2t[ids]

    def masks(self, start: int, keys: int, device: torch.device) -> list[Tensor | None]:
        """Per layer: who may see whom for a block at positions start.., `keys` rows in all, row j at position j.

        Full layers see everything. Sliding layers see the last `window` positions, and are causal inside the block
        unless the config says otherwise.
        """
        where = torch.arange(keys, device=device)
        query = where[start:, None]
        back = query - where[None]
        found: list[Tensor | None] = []
        for window, backward in zip(self.config.windows, self.config.causal, strict=True):
            if not window and not backward:
                found.append(None)
                continue
            seen = back >= 0 if backward else torch.ones_like(back, dtype=torch.bool)
            found.append(seen & (back.abs() < window) if window else seen)
        return found


def within(window: int, positions: Tensor, mask: Tensor | None, past: int) -> Tensor:
    """`mask` of n new rows, cut off `window` positions back: [n, past + n], True = visible.

    Keys are counted by their place in the cache. Rows of a tree stand behind their depth there, so they look nearer
    than they are, never farther; a window is always longer than a tree is deep.
    """
    n = len(positions)
    keys = torch.arange(past + n, device=positions.device)
    near = positions[:, None] - keys < window
    if mask is None:
        return near
    return near & (F.pad(mask, (past, 0), value=True) if mask.shape[-1] == n and past else mask)


DrafterNetwork = EagleHead | Eagle3Head | DFlashHead


def new_cache(network: DrafterNetwork, capacity: int, like: Tensor) -> KVCache:
    """An empty cache for one run of `network`, on the device and in the dtype of `like`."""
    shape = network.config.attention
    layers = network.config.layers if isinstance(network, DFlashHead) else 1
    return KVCache(layers, shape.kv_heads, shape.head_dim, capacity, dtype=like.dtype, device=like.device)
