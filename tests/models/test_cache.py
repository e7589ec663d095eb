"""What a cache keeps is what a fresh prefill of the kept tokens would hold, in every layer."""

import random

import pytest
import torch

from models.cache import KVCache
from models.decoder import Decoder
from tests.toy import toy_model


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return toy_model().decoder


def run(decoder: Decoder, cache: KVCache, tokens: list[int], positions: list[int], mask: torch.Tensor | None = None):
    with torch.inference_mode():
        return decoder(torch.tensor([tokens]), torch.tensor([positions]), cache, mask)


def fresh(decoder: Decoder, tokens: list[int]) -> KVCache:
    cache = decoder.new_cache(64)
    run(decoder, cache, tokens, list(range(len(tokens))))
    return cache


def assert_same(ours: KVCache, other: KVCache) -> None:
    n = ours.length
    assert n == other.length
    assert torch.allclose(ours.keys[:, :, :, :n], other.keys[:, :, :, :n], atol=1e-5)
    assert torch.allclose(ours.values[:, :, :, :n], other.values[:, :, :, :n], atol=1e-5)


PARENTS = [-1, 0, 0, 0, 1, 2, 2, 5, 5, 7, 3]
PATHS = [[0], [0, 1], [0, 3, 10], [0, 2, 6], [0, 2, 5, 7, 9], [0, 1, 4]]


@pytest.mark.parametrize("path", PATHS)
def test_a_kept_path_is_as_if_nothing_else_had_been_tried(decoder: Decoder, path: list[int]) -> None:
    """Scattered rows move together in all layers, and decoding goes on from them."""
    rng = random.Random(1)
    prompt, tokens = [9, 4, 33], [rng.randrange(64) for _ in PARENTS]
    sight = torch.eye(len(PARENTS), dtype=torch.bool)
    level = [3] * len(PARENTS)
    for i, parent in enumerate(PARENTS[1:], 1):
        sight[i] |= sight[parent]
        level[i] = level[parent] + 1
    cache = fresh(decoder, prompt)
    run(decoder, cache, tokens, level, sight)
    cache.keep(3, path)
    kept = prompt + [tokens[i] for i in path]
    again = fresh(decoder, kept)
    assert_same(cache, again)
    ours, theirs = (run(decoder, c, [21, 8], [len(kept), len(kept) + 1]).last for c in (cache, again))
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert_same(cache, again)


def test_keeping_nothing_and_keeping_a_row_elsewhere(decoder: Decoder) -> None:
    cache = fresh(decoder, [5, 6, 7, 8])
    before = cache.keys[:, :, :, 3].clone()
    cache.keep(1, [2])
    assert cache.length == 2
    assert torch.equal(cache.keys[:, :, :, 1], before)
    cache.keep(1, [])
    assert cache.length == 1


def test_cropped_rows_are_forgotten(decoder: Decoder) -> None:
    cache = fresh(decoder, [9, 4, 33, 12, 50])
    cache.crop(2)
    run(decoder, cache, [61], [2])
    assert_same(cache, fresh(decoder, [9, 4, 61]))


@pytest.mark.parametrize("length", [-1, 6])
def test_a_cache_cannot_be_cropped_to_what_it_does_not_hold(decoder: Decoder, length: int) -> None:
    cache = fresh(decoder, [9, 4, 33, 12, 50])
    with pytest.raises(ValueError, match=f"cannot crop 5 cached rows to {length}"):
        cache.crop(length)


def test_reserved_room_keeps_what_is_there(decoder: Decoder) -> None:
    cache, wide = decoder.new_cache(3), decoder.new_cache(64)
    for one in (cache, wide):
        run(decoder, one, [9, 4, 33], [0, 1, 2])
    cache.reserve(2)
    assert cache.capacity == 3
    cache.reserve(40)
    assert cache.capacity >= 40
    for one in (cache, wide):
        run(decoder, one, [1, 2, 3, 4, 5], [3, 4, 5, 6, 7])
    assert_same(cache, wide)


def test_a_full_cache_says_what_to_do(decoder: Decoder) -> None:
    cache = decoder.new_cache(4)
    run(decoder, cache, [9, 4, 33], [0, 1, 2])
    with pytest.raises(ValueError, match="holds 4 rows and 5 were asked for: use a shorter prompt"):
        run(decoder, cache, [1, 2], [3, 4])
    assert cache.length == 3
    run(decoder, cache, [1], [3])
    assert cache.length == 4
