"""Weights in few bits: found by value, given back bit for bit, multiplied as float32 would be."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import models
from models import layers
from models.codes import BLOCK, encode
from models.decoder import Layer
from models.layers import Coded, Linear, Packed, pack
from models.load import Model, load_target

tiles, vectors = pytest.importorskip("models.tiles"), pytest.importorskip("models.vectors")
try:
    tiles.engine("nibbles")
except vectors.Unsuitable as error:
    pytest.skip(str(error), allow_module_level=True)


def quarters(outs: int, wide: int) -> Tensor:
    """As GGUF's Q4_1 makes them: half-precision step and least weight of 32, sixteen steps."""
    step = torch.rand(outs, wide // BLOCK, 1).half().float() / 64
    least = -torch.rand(outs, wide // BLOCK, 1).half().float()
    codes = torch.randint(0, 16, (outs, wide // BLOCK, BLOCK)).float()
    codes[..., 0], codes[..., -1] = 0, 15
    return (codes * step.half().float() + least).flatten(1)


def eighths(outs: int, wide: int) -> Tensor:
    """As its Q8_0."""
    step = (torch.rand(outs, wide // BLOCK, 1) / 64).half().float()
    codes = torch.randint(-126, 127, (outs, wide // BLOCK, BLOCK)).float()
    codes[..., 3] = -127
    return (codes * step).flatten(1)


def halved(outs: int, wide: int) -> Tensor:
    return torch.randn(outs, wide).bfloat16().float()


KINDS = {"nibbles": quarters, "octets": eighths, "halves": halved}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("coding", KINDS)
@pytest.mark.parametrize("shape", [(32, 32), (64, 576), (960, 96)])
def test_a_coding_is_found_and_gives_every_weight_back(coding: str, shape: tuple[int, int]) -> None:
    weight = KINDS[coding](*shape)
    codes = encode(weight)
    assert codes
    assert codes.coding == coding
    product = tiles.Product(codes)
    assert torch.equal(product(torch.eye(shape[1])).T, weight)  # each weight times one, and nothing else


@pytest.mark.parametrize("coding", KINDS)
def test_products_are_as_exact_as_float32_allows_for_any_number_of_rows(coding: str) -> None:
    weight = KINDS[coding](96, 1536)
    codes = encode(weight)
    assert codes
    product = tiles.Product(codes)
    for rows in [*range(1, 40), 63, 64, 65, 130]:
        x = torch.randn(1, rows, 1536)
        exact = (x.double() @ weight.double().T).float()
        ours, theirs = (product(x) - exact).abs().max(), (F.linear(x, weight) - exact).abs().max()
        assert product(x).shape == (1, rows, 96)
        assert ours < 4 * theirs + 1e-6


def test_rows_may_lie_anywhere() -> None:
    layer = Coded(quarters(64, 64), torch.randn(64))
    x = torch.randn(64, 3, 5).permute(2, 1, 0)
    assert not x.is_contiguous()
    assert torch.allclose(layer(x), F.linear(x, layer.plain, layer.bias), atol=1e-4)
    assert layer(x[:0]).shape == (0, 3, 64)


@pytest.mark.parametrize("wide", [True, False])
def test_many_rows_go_another_way_to_the_same_result(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "wide_registers", lambda: wide)
    layer = Coded(eighths(64, 96), torch.randn(64))
    assert (layer.many is None) == wide
    for rows in (layer.most, layer.most + 1, 200):
        x = torch.randn(rows, 96)
        assert torch.allclose(layer(x), F.linear(x, layer.plain, layer.bias), atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same(threads: int) -> None:
    layer, x = Coded(quarters(96, 64), None), torch.randn(7, 64)
    want, before = layer(x), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(layer(x), want)
    finally:
        torch.set_num_threads(before)


def test_two_runs_may_multiply_at_once() -> None:
    layer = Coded(quarters(320, 256), None)
    inputs = [torch.randn(5, 256) for _ in range(60)]
    want = [layer(x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(layer, inputs))
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_what_no_coding_gives_back_has_none() -> None:
    assert encode(torch.randn(64, 64)) is None
    assert encode(quarters(64, 64) * 1.0001) is None
    one_wrong = quarters(96, 64)
    one_wrong[70, 40] += 1e-4
    assert encode(one_wrong) is None
    assert encode(torch.full((32, 32), torch.nan)) is None
    assert encode(halved(33, 64)) is None
    assert encode(halved(64, 20)) is None


def test_blocks_of_one_number_are_coded_too() -> None:
    for weight in (torch.zeros(32, 64), torch.full((32, 64), 0.25)):
        codes = encode(weight)
        assert codes
        assert torch.equal(tiles.Product(codes)(torch.eye(64)).T, weight)


def missing(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sys.modules, "models.tiles", None)
    patch.delattr(models, "tiles")


def old_processor(patch: pytest.MonkeyPatch) -> None:
    def machine() -> None:
        raise tiles.Unsuitable("no AVX2")

    tiles.engine.cache_clear()
    patch.setattr(vectors, "machine", machine)


def other_threads(patch: pytest.MonkeyPatch) -> None:
    def openmp() -> None:
        raise tiles.Unsuitable("no OpenMP")

    patch.setattr(tiles, "openmp", openmp)


def wrong(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tiles.Product, "__call__", lambda self, x: x.new_zeros(*x.shape[:-1], 32 * self.groups))


@pytest.mark.parametrize("trouble", [missing, old_processor, other_threads, wrong])
def test_where_tiles_cannot_run_weights_are_packed(trouble, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble(monkeypatch)
    weight = quarters(64, 64)
    packed = pack(weight, few_bits=True)
    assert packed
    assert type(packed) in (Packed, layers.IntelPacked)
    x = torch.randn(9, 64)
    assert torch.allclose(packed(x), F.linear(x, weight), atol=1e-4)


@pytest.fixture(scope="module")
def smollm() -> Model:
    return load_target(device="cpu", dtype="fewbits")


def test_every_matrix_of_the_target_is_read_in_the_bits_it_was_published_with(smollm: Model) -> None:
    """Four for the layers, eight for the LM head; all of it goes unseen where a processor cannot run tiles."""
    head = smollm.decoder.lm_head.packed
    assert isinstance(head, Coded)
    assert head.few.codes.coding == "octets"
    for layer in smollm.decoder.model.layers:
        assert isinstance(layer, Layer)
        attention, mlp = layer.self_attn, layer.mlp
        for part in (attention.qkv, attention.o_proj.packed, mlp.gate_up, mlp.down_proj.packed):
            assert isinstance(part, Coded)
            assert part.few.codes.coding == "nibbles"
            assert torch.equal(part.few(torch.eye(part.plain.shape[1])).T, part.plain)


def test_a_layer_takes_the_coded_weight_where_it_is_asked_to() -> None:
    layer = Linear(64, 32)
    layer.weight.data = halved(32, 64)
    x = torch.randn(2, 64)
    want = layer(x)
    layer.speed_up()
    assert not isinstance(layer.packed, Coded)
    layer.speed_up(few_bits=True)
    assert isinstance(layer.packed, Coded)
    assert torch.allclose(layer(x), want, atol=1e-5)
