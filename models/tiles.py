"""Products with coded weights (`models.codes`), in vectors that no compiler finds by itself.

A tile multiplies a few rows with one group of 32 outputs, which lie side by side in two vectors; each weight is widened
to float32 once and then meets every row. llvmlite compiles it for this very processor when a model is loaded, and it
runs in PyTorch's own threads: a second pool of threads would wake while the first one still spins.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from llvmlite import ir
from torch import Tensor

from models.codes import BLOCK, GROUP, Codes
from models.vectors import (
    BYTE,
    FLOAT,
    FLOATS,
    LANES,
    SHORT,
    SIZE,
    VECTOR,
    WHOLE,
    WHOLES,
    Pair,
    Unsuitable,
    Writer,
    begin,
    compiled,
    each,
    number,
    wide_registers,
)

JOB = ("x", "data", "scales", "out", "rows", "wide", "groups")  # addresses and sizes, eight bytes each
THREAD, THREADS = "omp_get_thread_num", "omp_get_num_threads"


def from_nibbles(w: Writer, at: Any, scales: list[Pair]) -> list[Any]:
    raw = w.read(at, ir.VectorType(BYTE, LANES))
    codes = w.and_(raw, each(15, raw.type)), w.lshr(raw, each(4, raw.type))
    wide = [w.sitofp(w.zext(code, WHOLES), FLOATS) for code in codes]
    return [w.fused(code, step, least) for code, step, least in zip(wide, *scales, strict=True)]


def from_octets(w: Writer, at: Any, scales: list[Pair]) -> list[Any]:
    codes = w.pair(at, ir.VectorType(BYTE, LANES))
    return [w.fmul(w.sitofp(w.sext(c, WHOLES), FLOATS), step) for c, step in zip(codes, scales[0], strict=True)]


def from_halves(w: Writer, at: Any, scales: list[Pair]) -> list[Any]:
    codes = w.pair(at, ir.VectorType(SHORT, LANES))
    return [w.bitcast(w.shl(w.zext(code, WHOLES), each(16, WHOLES)), FLOATS) for code in codes]


@dataclass(frozen=True)
class Layout:
    """How a coding is widened, the bytes of one input of a group, and the kinds of scale a block has."""

    widen: Callable[[Writer, Any, list[Pair]], list[Any]]
    stride: int
    kinds: int

    @property
    def scales(self) -> int:
        """Bytes of one block's scales."""
        return self.kinds * GROUP * 4


LAYOUTS = {
    "nibbles": Layout(from_nibbles, GROUP // 2, 2),
    "octets": Layout(from_octets, GROUP, 1),
    "halves": Layout(from_halves, GROUP * 2, 0),
}


def tile(module: ir.Module, layout: Layout, rows: int) -> ir.Function:
    """tile(x, data, scales, out, wide, outs): out [rows, 32 of outs] = x [rows, wide] · one group.

    The 32 products of a block are summed by themselves first: so long sums lose no more than a library's.
    """
    w = begin(module, f"tile{rows}", 6)
    w.function.linkage = "internal"
    w.function.attributes.add("noinline")
    x, data, scales, out, wide, outs = w.function.args
    sums, block_sums = w.zeros(2 * rows), w.zeros(2 * rows)
    with w.count(w.udiv(wide, number(BLOCK))) as block:
        w.clear(block_sums)
        base = w.plus(scales, (block, layout.scales))
        found = [w.pair(w.add(base, number(GROUP * 4 * kind))) for kind in range(layout.kinds)]
        with w.count(number(BLOCK)) as step:
            k = w.plus(step, (block, BLOCK))
            weights = layout.widen(w, w.plus(data, (k, layout.stride)), found)
            for row in range(rows):
                value = w.spread(w.read(w.plus(x, (wide, 4 * row), (k, 4)), FLOAT))
                for total, weight in zip(block_sums[2 * row : 2 * row + 2], weights, strict=True):
                    w.store(w.fused(weight, value, w.load(total)), total)
        for total, part in zip(sums, block_sums, strict=True):
            w.store(w.fadd(w.load(total), w.load(part)), total)
    for index, total in enumerate(sums):
        w.write(w.load(total), w.plus(w.add(out, number(VECTOR * (index % 2))), (outs, 4 * (index // 2))))
    w.ret_void()
    return w.function


def choose(w: Writer, left: Any, tiles: list[ir.Function], args: list[Any]) -> None:
    """Call the tile of as many rows as are left, the largest where there are more."""
    largest, after = w.append_basic_block("largest"), w.append_basic_block("chosen")
    cases = w.switch(left, largest)
    for rows, one in enumerate(tiles, 1):
        place = largest
        if rows < len(tiles):
            place = w.append_basic_block(f"rows{rows}")
            cases.add_case(number(rows), place)
        w.position_at_end(place)
        w.call(one, args)
        w.branch(after)
    w.position_at_end(after)


def work(module: ir.Module, layout: Layout, most: int, omp: dict[str, int]) -> None:
    """work(job): one thread's share of it; an item is `most` rows of one group."""
    tiles = [tile(module, layout, rows) for rows in range(1, most + 1)]
    w = begin(module, "work", 1)
    x, data, scales, out, rows, wide, groups = (
        w.read(w.add(w.function.args[0], number(8 * i)), SIZE) for i in range(len(JOB))
    )
    asked = ir.FunctionType(WHOLE, []).as_pointer()
    me, team = (w.sext(w.call(w.inttoptr(number(omp[name]), asked), []), SIZE) for name in (THREAD, THREADS))
    outs = w.mul(groups, number(GROUP))
    batches = w.udiv(w.add(rows, number(most - 1)), number(most))
    items = w.mul(groups, batches)
    first, last = w.udiv(w.mul(items, me), team), w.udiv(w.mul(items, w.add(me, number(1))), team)
    with w.count(last, first) as item:
        group, start = w.udiv(item, batches), w.mul(w.urem(item, batches), number(most))
        args = [
            w.plus(x, (w.mul(start, wide), 4)),
            w.plus(data, (w.mul(group, wide), layout.stride)),
            w.plus(scales, (w.mul(group, w.udiv(wide, number(BLOCK))), layout.scales)),
            w.plus(out, (group, GROUP * 4), (w.mul(start, outs), 4)),
        ]
        choose(w, w.sub(rows, start), tiles, [*args, wide, outs])
    w.ret_void()


@cache
def openmp() -> Any:
    """The OpenMP library that PyTorch's threads belong to."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError as error:
        raise Unsuitable("which libraries are loaded cannot be seen here") from error
    paths = {line.split(maxsplit=5)[-1] for line in lines if "omp" in line.rpartition("/")[2]}
    for path in sorted(paths, key=lambda path: ("torch" not in path, path)):
        try:
            library = ctypes.CDLL(path)
        except OSError:  # a mapped file that is no library
            continue
        if hasattr(library, "GOMP_parallel"):
            return library
    raise Unsuitable("PyTorch brought no OpenMP library with GNU's entry")


@cache
def engine(coding: str) -> Any:
    """The compiled tiles of a coding; their code goes when this does."""
    library = openmp()
    entries = {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in (THREAD, THREADS)}
    module = ir.Module()
    work(module, LAYOUTS[coding], 12 if wide_registers() else 8, entries)
    return compiled(module)


class Product:
    """x [.., in] → x Wᵀ [.., out] for a coded W [out, in]."""

    def __init__(self, codes: Codes):
        self.codes, self.engine = codes, engine(codes.coding)  # they own what the addresses point to
        self.groups, self.wide = codes.data.shape[:2]
        self.data, self.scales = codes.data.data_ptr(), codes.scales.data_ptr()
        self.work = self.engine.get_function_address("work")
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        self.parallel = kind(("GOMP_parallel", openmp()))

    def __call__(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        out = x.new_empty(*x.shape[:-1], self.groups * GROUP)
        rows = x.numel() // self.wide
        job = (x.data_ptr(), self.data, self.scales, out.data_ptr(), rows, self.wide, self.groups)
        self.parallel(self.work, (ctypes.c_int64 * len(JOB))(*job), torch.get_num_threads(), 0)
        return out
