"""The pieces every network here is made of: a linear layer that is quick on few rows, RMSNorm, RoPE,
attention over a cache, and the gated MLP. Target and drafters share them, so they share their bugs' fixes."""

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.cache import KVCache
from models.codes import encode

if TYPE_CHECKING:
    from models.fused import Turn

Made = TypeVar("Made")

ALONE = 16  # rows up to which one thread does small things quickest
TILED = 64  # rows up to which a coded weight is quickest on a processor with AVX-512 …
NARROW = 16  # … and on one without
FEW = 3  # rows for which reading a weight as it lies is as quick …
MANY = 64  # … and from which on it is as quick again on Intel
TYPICAL = 16  # rows that a packed weight is laid out for


class Packed:
    """y = x Wᵀ + b with a second copy of W laid out for the CPU's matrix kernels, oneDNN's.

    `F.linear` re-reads a row-major weight badly at 4 to 64 rows, which is where verification lives.
    The operators are internal to PyTorch, so `pack` falls back to None where they are missing.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self.plain, self.bias = weight, bias
        self.weight = self.laid_out(weight.contiguous())

    def laid_out(self, weight: Tensor) -> Tensor:
        return torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL)

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.numel() // x.shape[-1]
        return F.linear(x, self.plain, self.bias) if rows <= FEW else self.product(x, rows)

    def product(self, x: Tensor, rows: int) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")

    def agrees(self, rows: int = 5) -> bool:
        """Whether so many rows come out as they should, though the weight was packed for others."""
        x = torch.linspace(-1, 1, rows * self.plain.shape[1]).view(rows, -1)
        return torch.allclose(self(x), F.linear(x, self.plain, self.bias), rtol=1e-3, atol=1e-4)


class IntelPacked(Packed):
    """The same by MKL, which is quicker on Intel's processors up to 24 rows and hardly slower beyond.

    Its operator wants to be told the number of rows a weight was packed for, else it reads the plain one; the layout is
    the same for all of them, which `pack` makes sure of.
    """

    def laid_out(self, weight: Tensor) -> Tensor:
        return torch.ops.mkl._mkl_reorder_linear_weight(weight, TYPICAL)

    def product(self, x: Tensor, rows: int) -> Tensor:
        if rows > MANY:
            return F.linear(x, self.plain, self.bias)
        return torch.ops.mkl._mkl_linear(x, self.weight, self.plain, self.bias, rows)


class Coded(Packed):
    """The same with a copy of W in the bits it was published with, which is several times less to read; for more rows
    than `most` another copy, or W itself.

    Raises RuntimeError for a weight that has no coding, and where nothing can multiply with one.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None):
        from models import tiles  # only where it is used: llvmlite may be missing

        if (codes := encode(weight)) is None:
            raise tiles.Unsuitable("these are no weights of few bits")
        self.plain, self.bias = weight, bias
        self.few = tiles.Product(codes)
        self.most = TILED if tiles.wide_registers() else NARROW
        self.many = None if tiles.wide_registers() else pack_wide(weight, bias)

    def __call__(self, x: Tensor) -> Tensor:
        if x.numel() // x.shape[-1] <= self.most:
            return self.few(x) if self.bias is None else self.few(x).add_(self.bias)
        return self.many(x) if self.many else F.linear(x, self.plain, self.bias)


@cache
def on_intel() -> bool:
    """Whether the processor is Intel's, as the system says."""
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return "GenuineIntel" in platform.processor()


def on_cpu(weight: Tensor) -> bool:
    """Whether the short cuts below are for it."""
    return weight.device.type == "cpu" and weight.dtype == torch.float32


def pack(weight: Tensor, bias: Tensor | None = None, few_bits: bool = False) -> Packed | None:
    """The quickest form of `weight` [out, in], or None where this device or build has no use for one."""
    if not on_cpu(weight):
        return None
    return few_bits and attempt(Coded, weight, bias) or pack_wide(weight, bias)


def pack_wide(weight: Tensor, bias: Tensor | None) -> Packed | None:
    return attempt(IntelPacked if on_intel() else Packed, weight, bias)


def attempt(kind: type[Packed], weight: Tensor, bias: Tensor | None) -> Packed | None:
    try:
        packed = kind(weight, bias)
    except (AttributeError, ImportError, OSError, RuntimeError):
        return None
    return packed if packed.agrees() else None


class Linear(nn.Linear):
    """`nn.Linear` that uses its packed copy when inference asked for one (`speed_up`)."""

    packed: Packed | None = None

    def forward(self, x: Tensor) -> Tensor:
        return self.packed(x) if self.packed else F.linear(x, self.weight, self.bias)

    def speed_up(self, few_bits: bool = False) -> None:
        self.packed = pack(self.weight.detach(), None if self.bias is None else self.bias.detach(), few_bits)


def compiled() -> Any:
    """`models.fused`, where llvmlite is installed."""
    from models import fused

    return fused


def fused(make: Callable[[], Made]) -> Made | None:
    """What `make` compiles, or None where that cannot be."""
    try:
        return make()
    except (ImportError, OSError, RuntimeError):
        return None


def is_few(x: Tensor) -> bool:
    """Rows that one thread is soon done with."""
    return x.numel() // x.shape[-1] <= ALONE


def joined(parts: Sequence[Linear]) -> Tensor:
    """Their weights [sum of outs, in] as one, of which each then is a part: nothing lies in memory twice."""
    whole = torch.cat([part.weight.detach() for part in parts])
    for part, rows in zip(parts, whole.split([part.weight.shape[0] for part in parts]), strict=True):
        part.weight.data = rows
    return whole


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight."""

    few: Callable[[Tensor], Tensor] | None = None
    quick: tuple[Tensor, Tensor] | None = None

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if self.few and is_few(x):
            return self.few(x)
        if self.quick is None:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        gain, floor = self.quick
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x * gain).div_(torch.hypot(length, floor))

    def speed_up(self) -> None:
        """PyTorch makes nine small calls of `rms_norm` on CPU; by the length of a row it takes four."""
        if on_cpu(self.weight):
            size = self.weight.numel()
            self.few = fused(lambda: compiled().Norm(self.weight.detach(), self.eps))
            self.quick = (self.weight.detach() * size**0.5, torch.tensor((size * self.eps) ** 0.5))


@dataclass(frozen=True)
class AttentionShape:
    """Sizes of one attention layer; `input` is the width its projections read (2 × hidden in EAGLE-3)."""

    input: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False

    @property
    def group(self) -> int:
        """Heads that share keys and values."""
        return self.heads // self.kv_heads


@dataclass(frozen=True)
class Rope:
    """Rotary angles. `inv_freq` has head_dim / 2 entries; `scale` multiplies cos and sin (yarn, llama3: 1)."""

    inv_freq: tuple[float, ...]
    scale: float = 1.0

    def angles(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """positions [B, n] → cos, sin [B, 1, n, head_dim]; in fp32 from whole positions, so no table can run out."""
        theta = positions[:, None, :, None].float() * frequencies(self.inv_freq, positions.device)
        theta = torch.cat([theta, theta], dim=-1)
        return (theta.cos() * self.scale).to(dtype), (theta.sin() * self.scale).to(dtype)


@lru_cache(maxsize=64)
def frequencies(inv_freq: tuple[float, ...], device: torch.device) -> Tensor:
    """They stay on their device: a CUDA graph must not copy from the host."""
    with torch.inference_mode(False):  # whoever asks first, training may ask next
        return torch.tensor(inv_freq, device=device)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Half-split (NeoX) rotation of x [B, heads, n, head_dim]."""
    a, b = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat([-b, a], dim=-1), sin)


def additive(mask: Tensor | None, past: int, dtype: torch.dtype, group: int = 1) -> Tensor | None:
    """Boolean mask [.., n, n or past + n], True = visible → scores to add, [B, 1, group · n, past + n].

    The past is seen. group: how many heads share their keys, as `attend` lays them behind each other; repeated here,
    once for all layers of a pass.
    """
    if mask is None:
        return None
    if mask.shape[-1] == mask.shape[-2] and past:
        mask = F.pad(mask, (past, 0), value=True)
    scores = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    scores.masked_fill_(~mask, torch.finfo(dtype).min)
    scores = scores[:, None] if mask.dim() == 3 else scores[None, None]
    return scores.repeat(1, 1, group, 1) if group > 1 else scores


def causal(n: int, past: int, device: torch.device) -> Tensor | None:
    """Mask of n new rows behind `past` cached ones; None where one row may simply see everything."""
    if n == 1:
        return None
    return torch.ones(n, past + n, dtype=torch.bool, device=device).tril(past)


class Attention(nn.Module):
    """Grouped-query attention with RoPE, optional biases and per-head q/k norm."""

    qkv: Packed | None = None
    turn: "Turn | None" = None

    def __init__(self, shape: AttentionShape):
        super().__init__()
        self.shape = shape
        width = shape.heads * shape.head_dim
        kv_width = shape.kv_heads * shape.head_dim
        self.q_proj = Linear(shape.input, width, bias=shape.qkv_bias)
        self.k_proj = Linear(shape.input, kv_width, bias=shape.qkv_bias)
        self.v_proj = Linear(shape.input, kv_width, bias=shape.qkv_bias)
        self.o_proj = Linear(width, shape.hidden, bias=shape.o_bias)
        if shape.qk_norm:
            self.q_norm = RMSNorm(shape.head_dim, shape.eps)
            self.k_norm = RMSNorm(shape.head_dim, shape.eps)

    def speed_up(self, few_bits: bool = False) -> None:
        parts = (self.q_proj, self.k_proj, self.v_proj)
        bias = torch.cat([p.bias.detach() for p in parts]) if self.shape.qkv_bias else None
        self.qkv = pack(joined(parts), bias, few_bits)
        if self.qkv and not self.shape.qk_norm:
            self.turn = fused(lambda: compiled().Turn(self.shape.heads, self.shape.kv_heads, self.shape.head_dim))

    def project(self, x: Tensor) -> Tensor:
        """x [B, n, input] → rows of q, k, v heads [B, n, (heads + 2 kv_heads) · head_dim]."""
        return self.qkv(x) if self.qkv else torch.cat([self.q_proj(x), self.k_proj(x), self.v_proj(x)], dim=-1)

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        scores: Tensor | None,
        cache: KVCache | None,
        layer: int,
        context: int = 0,
    ) -> Tensor:
        """x [B, n, input]; its first `context` rows lend keys and values only. Returns [B, n - context, hidden]."""
        flat = self.project(x)
        if self.turn and cache is not None and x.shape[0] == 1 and is_few(x):
            q, k, v = self.turn(flat, cos, sin, cache, layer, context)
        else:
            q, k, v = self.parts(flat, cos, sin, context)
            if cache is not None:
                k, v = cache.append(layer, k, v)
        return self.o_proj(attend(q, k, v, scores))

    def lend(self, x: Tensor, cos: Tensor, sin: Tensor, cache: KVCache, layer: int) -> None:
        """x [B, n, input]: rows that give keys and values, and ask nothing."""
        _, k, v = self.parts(self.project(x), cos, sin, x.shape[1])
        cache.append(layer, k, v)

    def parts(self, flat: Tensor, cos: Tensor, sin: Tensor, context: int) -> tuple[Tensor, Tensor, Tensor]:
        """What `project` gives → turned q [B, heads, n - context, dim], turned k and v [B, kv_heads, n, dim]."""
        heads, kv = self.shape.heads, self.shape.kv_heads
        rows = flat.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)
        if self.shape.qk_norm:
            q, k, v = rows.split([heads, kv, kv], dim=1)
            rows = torch.cat([self.q_norm(q), self.k_norm(k), v], dim=1)
        turned = rotate(rows[:, : heads + kv], cos, sin)
        return turned[:, :heads, context:], turned[:, heads:], rows[:, heads + kv :]


def attend(q: Tensor, k: Tensor, v: Tensor, scores: Tensor | None) -> Tensor:
    """q [B, heads, n, d] over k, v [B, kv_heads, m, d] with scores of `additive` for that group → [B, n, heads · d].

    The heads that share keys are laid behind each other as rows: the keys are then read once for all of them.
    """
    batch, heads, n, dim = q.shape
    rows = q.reshape(batch, k.shape[1], -1, dim)
    out = F.scaled_dot_product_attention(rows, k, v, attn_mask=scores)
    return out.reshape(batch, heads, n, dim).transpose(1, 2).flatten(2)


class MLP(nn.Module):
    """down(silu(gate x) · up x)."""

    gate_up: Packed | None = None
    gate: Callable[[Tensor], Tensor] | None = None

    def __init__(self, hidden: int, ffn: int):
        super().__init__()
        self.gate_proj = Linear(hidden, ffn, bias=False)
        self.up_proj = Linear(hidden, ffn, bias=False)
        self.down_proj = Linear(ffn, hidden, bias=False)

    def speed_up(self, few_bits: bool = False) -> None:
        self.gate_up = pack(joined((self.gate_proj, self.up_proj)), few_bits=few_bits)
        self.gate = fused(lambda: compiled().Gate(self.gate_proj.out_features)) if self.gate_up else None

    def forward(self, x: Tensor) -> Tensor:
        if self.gate_up is None:
            return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        both = self.gate_up(x)
        if self.gate and is_few(x):
            return self.down_proj(self.gate(both))
        gate, up = both.chunk(2, dim=-1)
        return self.down_proj(F.silu(gate) * up)


def speed_up(network: nn.Module, few_bits: bool = False) -> None:
    """Give a finished network its short cuts (CPU, fp32). Not for training: packed weights do not follow updates.

    few_bits: read weights in the bits they were published with, where these give them back exactly.
    """
    joint: set[nn.Module] = set()
    for module in network.modules():
        if isinstance(module, Attention):
            module.speed_up(few_bits)
            joint |= {module.q_proj, module.k_proj, module.v_proj}
        elif isinstance(module, MLP):
            module.speed_up(few_bits)
            joint |= {module.gate_proj, module.up_proj}
    for module in network.modules():
        if isinstance(module, Linear) and module not in joint:
            module.speed_up(few_bits)
        elif isinstance(module, RMSNorm):
            module.speed_up()


def default_inv_freq(theta: float, head_dim: int) -> tuple[float, ...]:
    return tuple(math.pow(theta, -2 * i / head_dim) for i in range(head_dim // 2))


def bytes_a_weight(network: nn.Module) -> float:
    """What is read of a matrix's weight on average, in bytes; 0 where all are read as they lie in memory."""
    found = [getattr(module, name, None) for module in network.modules() for name in ("packed", "qkv", "gate_up")]
    known = [one for one in found if isinstance(one, Packed)]
    if not any(isinstance(one, Coded) for one in known):
        return 0.0
    read = sum(one.few.codes.bytes if isinstance(one, Coded) else one.plain.nbytes for one in known)
    return read / sum(one.plain.numel() for one in known)


LMHead = Callable[[Tensor], Tensor]  # rows [.., hidden] → logits [.., vocab]
