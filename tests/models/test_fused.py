"""What is done in one call between two matrices is what the many small ones do."""

import sys

import pytest
import torch
import torch.nn.functional as F

import models
from models.cache import KVCache
from models.layers import MLP, Attention, AttentionShape, RMSNorm, Rope, additive, causal, default_inv_freq, speed_up

fused = pytest.importorskip("models.fused")
try:
    fused.engine()
except fused.Unsuitable as error:
    pytest.skip(str(error), allow_module_level=True)

SHAPE = AttentionShape(input=96, hidden=64, heads=6, kv_heads=2, head_dim=32, eps=1e-5)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("size", [0.0, 1e-6, 1.0, 3e4])
@pytest.mark.parametrize("rows", [1, 5, 16])
def test_the_norm(size: float, rows: int) -> None:
    norm = RMSNorm(48, 1e-5)
    norm.weight.data = torch.rand(48)
    x = size * torch.randn(1, rows, 48)
    want = norm(x)
    speed_up(norm)
    assert norm.few
    assert torch.allclose(norm(x), want, rtol=1e-5, atol=1e-7)
    assert torch.allclose(norm(x.transpose(0, 1)), want.transpose(0, 1), rtol=1e-5, atol=1e-7)


def test_the_gate_for_numbers_of_any_size() -> None:
    x = torch.cat([torch.linspace(-120, 120, 64), torch.randn(64)]).view(1, 1, 128).repeat(1, 5, 1)
    gate, up = x.chunk(2, dim=-1)
    assert torch.allclose(fused.Gate(64)(x), F.silu(gate) * up, rtol=1e-5, atol=1e-6)


def lent(attention: Attention, context: int, rows: int, past: int) -> tuple[torch.Tensor, KVCache]:
    """What an attention makes of rows behind a past, some of which lend keys and values only."""
    generator = torch.Generator().manual_seed(rows)
    cache = KVCache(2, 2, 32, 64)
    for store in (cache.keys, cache.values):
        store.copy_(torch.randn(store.shape, generator=generator))
    cache.advance(past)
    x = torch.randn(1, rows, 96, generator=generator)
    cos, sin = Rope(default_inv_freq(1000.0, 32)).angles(torch.arange(past, past + rows)[None], torch.float32)
    mask = causal(rows, past, torch.device("cpu"))
    scores = additive(mask if mask is None else mask[context:], past, torch.float32, SHAPE.group)
    return attention(x, cos, sin, scores, cache, 1, context), cache


@pytest.mark.parametrize(
    ("context", "rows", "past"), [(0, 1, 0), (0, 1, 9), (0, 7, 9), (3, 7, 9), (0, 16, 20), (0, 30, 9)]
)
def test_turning_and_caching(context: int, rows: int, past: int) -> None:
    attention = Attention(SHAPE).requires_grad_(False)
    want, theirs = lent(attention, context, rows, past)
    speed_up(attention)
    assert attention.turn
    got, ours = lent(attention, context, rows, past)
    assert torch.allclose(got, want, atol=1e-5)
    end = past + rows
    for mine, other in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
        assert torch.equal(mine[0], other[0])  # another layer's
        assert torch.equal(mine[1, :, :, :past], other[1, :, :, :past])
        assert torch.equal(mine[1, :, :, end:], other[1, :, :, end:])
        assert torch.allclose(mine[1, :, :, past:end], other[1, :, :, past:end], atol=1e-6)


def test_what_is_no_whole_vector_goes_the_other_way() -> None:
    for make in (lambda: fused.Norm(torch.ones(20), 1e-5), lambda: fused.Gate(20), lambda: fused.Turn(6, 2, 16)):
        with pytest.raises(fused.Unsuitable):
            make()
    layer, x = MLP(20, 20), torch.randn(1, 3, 20)
    want = layer(x)
    speed_up(layer)
    assert layer.gate is None
    assert torch.allclose(layer(x), want, atol=1e-6)


def test_without_the_compiler_all_goes_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "models.fused", None)
    monkeypatch.delattr(models, "fused")
    norm, layer = RMSNorm(48, 1e-5), MLP(32, 48)
    speed_up(norm)
    speed_up(layer)
    assert norm.few is None
    assert layer.gate is None
