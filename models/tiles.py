"""Products with coded weights (`models.codes`), in vectors that no compiler finds by itself.

A tile multiplies a few rows with one group of 32 outputs, which lie side by side in two vectors; each weight is widened
to float32 once and then meets every row. llvmlite compiles it for this very processor when a model is loaded, and it
runs in PyTorch's own threads: a second pool of threads would wake while the first one still spins.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from llvmlite import binding, ir
from torch import Tensor

from models.codes import BLOCK, GROUP, LANES, Codes

FLOAT, BYTE, SHORT, WHOLE, SIZE = ir.FloatType(), ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
FLOATS, WHOLES = ir.VectorType(FLOAT, LANES), ir.VectorType(WHOLE, LANES)
JOB = ("x", "data", "scales", "out", "rows", "wide", "groups")  # addresses and sizes, eight bytes each
THREAD, THREADS = "omp_get_thread_num", "omp_get_num_threads"

Pair = tuple[Any, Any]  # the two vectors of a group


class Unsuitable(RuntimeError):
    """This processor or build of PyTorch cannot run a tile."""


def number(value: int) -> ir.Constant:
    return ir.Constant(SIZE, value)


def each(value: float, kind: ir.VectorType = FLOATS) -> ir.Constant:
    return ir.Constant(kind, [value] * LANES)


class Writer(ir.IRBuilder):
    """LLVM's builder with the verbs that are needed here; an address is a whole number."""

    def plus(self, base: Any, *terms: tuple[Any, int]) -> Any:
        """base + number · bytes for each term."""
        for count, size in terms:
            base = self.add(base, self.mul(count, number(size)))
        return base

    def read(self, address: Any, kind: Any) -> Any:
        return self.load(self.inttoptr(address, kind.as_pointer()), align=1)

    def write(self, value: Any, address: Any) -> None:
        self.store(value, self.inttoptr(address, value.type.as_pointer()), align=1)

    def pair(self, address: Any, kind: ir.VectorType) -> Pair:
        """Two vectors that lie behind each other."""
        size = LANES * (4 if kind is FLOATS else kind.element.width // 8)
        return self.read(address, kind), self.read(self.add(address, number(size)), kind)

    def spread(self, value: Any) -> Any:
        """One number in every lane."""
        nothing = ir.Constant(FLOATS, ir.Undefined)
        first = self.insert_element(nothing, value, ir.Constant(WHOLE, 0))
        return self.shuffle_vector(first, nothing, each(0, WHOLES))

    def fused(self, x: Any, y: Any, z: Any) -> Any:
        """x · y + z, rounded once."""
        name = f"llvm.fma.v{LANES}f32"
        kind = ir.FunctionType(FLOATS, [FLOATS] * 3)
        return self.call(self.module.globals.get(name) or ir.Function(self.module, kind, name), [x, y, z])

    def zeros(self, count: int) -> list[Any]:
        """Variables, which the compiler keeps in registers while there are some left."""
        variables = [self.alloca(FLOATS) for _ in range(count)]
        self.clear(variables)
        return variables

    def clear(self, variables: list[Any]) -> None:
        for variable in variables:
            self.store(each(0.0), variable)

    @contextmanager
    def count(self, first: Any, last: Any) -> Iterator[Any]:
        """A loop over first … last - 1."""
        before = self.block
        head, body, after = (self.append_basic_block(name) for name in ("head", "body", "after"))
        self.branch(head)
        self.position_at_end(head)
        index = self.phi(SIZE)
        index.add_incoming(first, before)
        self.cbranch(self.icmp_signed("<", index, last), body, after)
        self.position_at_end(body)
        yield index
        index.add_incoming(self.add(index, number(1)), self.block)
        self.branch(head)
        self.position_at_end(after)


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
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [SIZE] * 6), f"tile{rows}")
    function.linkage = "internal"
    function.attributes.add("noinline")
    x, data, scales, out, wide, outs = function.args
    w = Writer(function.append_basic_block())
    sums, block_sums = w.zeros(2 * rows), w.zeros(2 * rows)
    with w.count(number(0), w.udiv(wide, number(BLOCK))) as block:
        w.clear(block_sums)
        base = w.plus(scales, (block, layout.scales))
        found = [w.pair(w.add(base, number(GROUP * 4 * kind)), FLOATS) for kind in range(layout.kinds)]
        with w.count(number(0), number(BLOCK)) as step:
            k = w.plus(step, (block, BLOCK))
            weights = layout.widen(w, w.plus(data, (k, layout.stride)), found)
            for row in range(rows):
                value = w.spread(w.read(w.plus(x, (wide, 4 * row), (k, 4)), FLOAT))
                for total, weight in zip(block_sums[2 * row : 2 * row + 2], weights, strict=True):
                    w.store(w.fused(weight, value, w.load(total)), total)
        for total, part in zip(sums, block_sums, strict=True):
            w.store(w.fadd(w.load(total), w.load(part)), total)
    for index, total in enumerate(sums):
        w.write(w.load(total), w.plus(w.add(out, number(4 * LANES * (index % 2))), (outs, 4 * (index // 2))))
    w.ret_void()
    return function


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
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [SIZE]), "work")
    w = Writer(function.append_basic_block())
    x, data, scales, out, rows, wide, groups = (
        w.read(w.add(function.args[0], number(8 * i)), SIZE) for i in range(len(JOB))
    )
    asked = ir.FunctionType(WHOLE, []).as_pointer()
    me, team = (w.sext(w.call(w.inttoptr(number(omp[name]), asked), []), SIZE) for name in (THREAD, THREADS))
    outs = w.mul(groups, number(GROUP))
    batches = w.udiv(w.add(rows, number(most - 1)), number(most))
    items = w.mul(groups, batches)
    first, last = w.udiv(w.mul(items, me), team), w.udiv(w.mul(items, w.add(me, number(1))), team)
    with w.count(first, last) as item:
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
        library = ctypes.CDLL(path)
        if hasattr(library, "GOMP_parallel"):
            return library
    raise Unsuitable("PyTorch brought no OpenMP library with GNU's entry")


def machine() -> Any:
    """LLVM's picture of this processor; each engine owns one of its own."""
    features = binding.get_host_cpu_features()
    if not features.get("avx2") or not features.get("fma"):
        raise Unsuitable("tiles are for processors with AVX2")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features.flatten(), opt=3)


def wide_registers() -> bool:
    """AVX-512: twice as wide, and twice as many."""
    return bool(binding.get_host_cpu_features().get("avx512f"))


@cache
def engine(coding: str) -> Any:
    """The compiled tiles of a coding; their code goes when this does."""
    library = openmp()
    entries = {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in (THREAD, THREADS)}
    module = ir.Module()
    module.triple = binding.get_default_triple()
    work(module, LAYOUTS[coding], 12 if wide_registers() else 8, entries)
    parsed = binding.parse_assembly(str(module))
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_unrolling = False  # no gain, and seconds of compiling
    target = machine()
    passes = binding.create_pass_builder(target, options)
    passes.getModulePassManager().run(parsed, passes)
    made = binding.create_mcjit_compiler(parsed, target)
    made.finalize_object()
    return made


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
