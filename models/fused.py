"""What stands between two matrices, each in one call: PyTorch takes four to twenty small ones for it, and at a few rows
they cost as much time as the matrices. Compiled like `models.tiles`; one thread does it, for a few rows are soon done.
"""

from functools import cache
from typing import Any

import torch
from llvmlite import ir
from torch import Tensor

from models.cache import KVCache
from models.vectors import FLOAT, FLOATS, LANES, VECTOR, Unsuitable, Writer, begin, compiled, each, entry, number


def normed(module: ir.Module) -> None:
    """norm(x, gain, out, rows, wide, floor): x · gain / sqrt(sum of squares + floor); `floor` points to a number."""
    w = begin(module, "norm", 6)
    x, gain, out, rows, wide, floor = w.function.args
    least = w.read(floor, FLOAT)
    bytes_, (total,) = w.mul(wide, number(4)), w.zeros(1)
    with w.count(rows) as row:
        base, to = w.add(x, w.mul(row, bytes_)), w.add(out, w.mul(row, bytes_))
        w.clear([total])
        with w.count(bytes_, step=VECTOR) as at:
            part = w.read(w.add(base, at))
            w.store(w.fused(part, part, w.load(total)), total)
        length = w.ask("llvm.sqrt.f32", FLOAT, w.fadd(summed(w, w.load(total)), least))
        scale = w.spread(w.fdiv(ir.Constant(FLOAT, 1.0), length))
        with w.count(bytes_, step=VECTOR) as at:
            part = w.fmul(w.read(w.add(base, at)), w.read(w.add(gain, at)))
            w.write(w.fmul(part, scale), w.add(to, at))
    w.ret_void()


def summed(w: Writer, value: Any) -> Any:
    """The sum of a vector's lanes."""
    total = w.extract_element(value, number(0))
    for lane in range(1, LANES):
        total = w.fadd(total, w.extract_element(value, number(lane)))
    return total


def gated(module: ir.Module) -> None:
    """gate(x, out, rows, wide): silu of the first `wide` numbers of a row times the next ones."""
    w = begin(module, "gate", 4)
    x, out, rows, wide = w.function.args
    bytes_ = w.mul(wide, number(4))
    with w.count(rows) as row:
        base, to = w.plus(x, (w.mul(row, bytes_), 2)), w.add(out, w.mul(row, bytes_))
        with w.count(bytes_, step=VECTOR) as at:
            gate, up = w.read(w.add(base, at)), w.read(w.add(w.add(base, bytes_), at))
            below = w.fadd(each(1.0), w.ask(f"llvm.exp.v{LANES}f32", FLOATS, w.fneg(gate)))
            w.write(w.fmul(w.fdiv(gate, below), up), w.add(to, at))
    w.ret_void()


TURN = ("x", "cos", "sin", "queries", "keys", "values", "rows", "lent", "heads", "kv", "dim", "room")


def turned(module: ir.Module) -> None:
    """turn(...): rows of q, k and v heads → turned queries [heads, rows - lent, dim], and turned keys and values where
    the cache wants them, `room` rows a head."""
    w = begin(module, "turn", len(TURN))
    x, cos, sin, queries, keys, values, rows, lent, heads, kv, dim, room = w.function.args
    size = w.mul(dim, number(4))
    width = w.mul(w.plus(heads, (kv, 2)), size)
    asking = w.sub(rows, lent)
    with w.count(rows) as row:
        base, angle = w.add(x, w.mul(row, width)), w.mul(row, size)
        here = w.add(cos, angle), w.add(sin, angle)
        with w.if_then(w.icmp_signed(">=", row, lent)), w.count(heads) as head:
            to = w.add(w.mul(head, asking), w.sub(row, lent))
            rotated(w, w.add(base, w.mul(head, size)), here, w.add(queries, w.mul(to, size)), size)
        with w.count(kv) as head:
            place = w.mul(w.add(w.mul(head, room), row), size)
            key = w.add(base, w.mul(w.add(heads, head), size))
            rotated(w, key, here, w.add(keys, place), size)
            value = w.add(key, w.mul(kv, size))
            with w.count(size, step=VECTOR) as at:
                w.write(w.read(w.add(value, at)), w.add(w.add(values, place), at))
    w.ret_void()


def rotated(w: Writer, x: Any, angle: tuple[Any, Any], to: Any, size: Any) -> None:
    """One head turned by its angles: the halves of it against each other, as `layers.rotate` does."""
    half = w.udiv(size, number(2))
    cos, sin = angle
    with w.count(half, step=VECTOR) as at:
        low, high = w.read(w.add(x, at)), w.read(w.add(w.add(x, half), at))
        c, s = w.read(w.add(cos, at)), w.read(w.add(sin, at))
        w.write(w.fsub(w.fmul(low, c), w.fmul(high, s)), w.add(to, at))
        c, s = w.read(w.add(w.add(cos, half), at)), w.read(w.add(w.add(sin, half), at))
        w.write(w.fused(low, s, w.fmul(high, c)), w.add(w.add(to, half), at))


@cache
def engine() -> Any:
    module = ir.Module()
    for write in (normed, gated, turned):
        write(module)
    return compiled(module)


@cache
def call(name: str, arguments: int) -> Any:
    return entry(engine(), name, arguments)


def fits(wide: int) -> None:
    if wide % LANES:
        raise Unsuitable(f"{wide} numbers are no whole vectors")


class Norm:
    """RMSNorm of a few rows."""

    def __init__(self, weight: Tensor, eps: float):
        fits(weight.numel())
        self.size, self.run = weight.numel(), call("norm", 6)
        self.gain, self.floor = weight * self.size**0.5, torch.tensor(self.size * eps)

    def __call__(self, x: Tensor) -> Tensor:
        x, out = x.contiguous(), torch.empty(x.shape)
        rows = x.numel() // self.size
        self.run(x.data_ptr(), self.gain.data_ptr(), out.data_ptr(), rows, self.size, self.floor.data_ptr())
        return out


class Gate:
    """silu(gate) · up of rows that hold both, one behind the other."""

    def __init__(self, wide: int):
        fits(wide)
        self.wide, self.run = wide, call("gate", 4)

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.empty(*x.shape[:-1], self.wide)
        self.run(x.data_ptr(), out.data_ptr(), out.numel() // self.wide, self.wide)
        return out


class Turn:
    """Rows of q, k and v heads → turned queries; turned keys and values go straight into the cache."""

    def __init__(self, heads: int, kv: int, dim: int):
        fits(dim // 2)
        self.sizes, self.run = (heads, kv, dim), call("turn", len(TURN))

    def __call__(
        self, flat: Tensor, cos: Tensor, sin: Tensor, cache: KVCache, layer: int, lent: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """flat [1, n, (heads + 2 kv) · dim], cos and sin [1, 1, n, dim] → q [1, heads, n - lent, dim], all keys and
        values so far [1, kv, past + n, dim]."""
        heads, kv, dim = self.sizes
        rows = flat.shape[1]
        keys, values = cache.room(layer, rows)
        q = torch.empty(1, heads, rows - lent, dim)
        start = 4 * dim * cache.length
        self.run(
            *(flat.data_ptr(), cos.data_ptr(), sin.data_ptr(), q.data_ptr()),
            *(keys.data_ptr() + start, values.data_ptr() + start),
            *(rows, lent, heads, kv, dim, cache.capacity),
        )
        return q, keys, values
