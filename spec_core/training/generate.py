"""Lets the target go on with many texts at once; finished ones leave the batch, lest passes be spent on them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.cache import KVCache
from models.decoder import Decoder
from spec_core.trace import Sampling
from spec_core.verify import law

KEPT = 0.85  # share of a batch that goes on when the others leave it: every leave copies what stays of the cache


@dataclass
class Text:
    """One text being written: its ids so far, and whether it came to a stop token."""

    ids: list[int]
    sampling: Sampling
    ended: bool = False


def left_padded(texts: Sequence[Text], device: torch.device) -> tuple[Tensor, Tensor]:
    """ids [B, n] with the padding in front, and [B, n] True where a token is real."""
    longest = max(len(t.ids) for t in texts)
    ids = torch.tensor([[0] * (longest - len(t.ids)) + t.ids for t in texts], device=device)
    real = torch.tensor([[False] * (longest - len(t.ids)) + [True] * len(t.ids) for t in texts], device=device)
    return ids, real


def thinned(cache: KVCache, rows: Tensor) -> KVCache:
    """A cache of only those texts."""
    layers, _, heads, capacity, dim = cache.keys.shape
    fresh = KVCache(layers, heads, dim, capacity, batch=len(rows), dtype=cache.keys.dtype, device=cache.keys.device)
    for new, old in ((fresh.keys, cache.keys), (fresh.values, cache.values)):
        new[:, :, :, : cache.length] = old[:, rows, :, : cache.length]
    fresh.advance(cache.length)
    return fresh


def pick(logits: Tensor, texts: Sequence[Text], rng: torch.Generator) -> list[int]:
    """One token for each text, by its own sampling; logits [B, vocab], wherever they are: draws are the host's."""
    logits = logits.float().cpu()
    found = logits.argmax(-1)
    for sampling in {t.sampling for t in texts if t.sampling.temperature > 0}:
        rows = torch.tensor([i for i, t in enumerate(texts) if t.sampling == sampling])
        found[rows] = torch.multinomial(law(logits[rows], sampling), 1, generator=rng)[:, 0]
    return found.tolist()


def settle(texts: Sequence[Text], tokens: Sequence[int], stops: frozenset[int]) -> Tensor:
    """Add a token to each text that has not ended; returns which of them go on."""
    for text, token in zip(texts, tokens, strict=True):
        if not text.ended:
            text.ids.append(token)
            text.ended = token in stops
    return torch.tensor([i for i, t in enumerate(texts) if not t.ended], dtype=torch.long)


@torch.inference_mode()
def write(decoder: Decoder, texts: Sequence[Text], stops: frozenset[int], limit: int, rng: torch.Generator) -> None:
    """Extend every text in place by up to `limit` tokens; a stop token is kept as its last one."""
    device = decoder.device
    ids, real = left_padded(texts, device)
    cache = decoder.new_cache(ids.shape[1] + limit, len(texts))
    mask = real[:, None] & torch.ones(ids.shape[1], ids.shape[1], device=device).tril().bool()
    mask |= torch.eye(ids.shape[1], device=device).bool()  # padding sees itself: a row that sees nothing has no softmax
    positions = (real.cumsum(1) - 1).clamp(min=0)
    out = decoder(ids, positions, cache, mask)
    for _ in range(limit):
        going = settle(texts, pick(decoder.lm_head(out.last[:, -1]), texts, rng), stops)
        if not len(going):
            return
        if len(going) <= KEPT * len(texts):
            here = going.to(device)
            cache, real, positions = thinned(cache, here), real[here], positions[here]
            texts = [texts[i] for i in going.tolist()]
        real = torch.cat([real, real.new_ones(len(texts), 1)], dim=1)
        positions = positions[:, -1:] + 1
        out = decoder(torch.tensor([[t.ids[-1]] for t in texts], device=device), positions, cache, real[:, None])
