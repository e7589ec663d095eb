"""Caches for a run. Where graphs are asked for they are read in fixed shapes, and outlive it with what was captured."""

from collections.abc import Sequence

from torch import Tensor

from models.cache import KVCache
from models.decoder import Decoder
from models.graphs import PlayedCache, asked, borrow
from models.heads import DrafterNetwork, new_cache
from spec_core.contract import aside

FIRST = 1024  # rows of a drafter's cache: a longer run moves it, and captures anew


def fresh(cache: KVCache) -> KVCache:
    """An empty cache, made ready for graphs where they are asked for."""
    return PlayedCache(cache, aside) if asked(cache.keys.device) else cache


def target_cache(decoder: Decoder, layers: Sequence[int], rows: int, run: object) -> KVCache:
    """Room for `rows` rows of the target, of which a run wants the features of `layers`."""
    if not asked(decoder.device):
        return decoder.new_cache(rows)
    return borrow(decoder, tuple(layers), rows, lambda rows: PlayedCache(decoder.new_cache(rows), aside), run)


def draft_cache(head: DrafterNetwork, like: Tensor, run: object) -> KVCache:
    """A drafter's, which starts small and grows; on the device and in the dtype of `like`."""
    if not asked(like.device):
        return new_cache(head, 0, like)
    return borrow(head, "draft", FIRST, lambda rows: PlayedCache(new_cache(head, rows, like), aside), run)
