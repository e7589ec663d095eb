"""Writing LLVM's vector code from Python and compiling it for the processor at hand, with llvmlite."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding, ir

LANES = 16  # numbers in a vector
FLOAT, BYTE, SHORT, WHOLE, SIZE = ir.FloatType(), ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
FLOATS, WHOLES = ir.VectorType(FLOAT, LANES), ir.VectorType(WHOLE, LANES)
VECTOR = 4 * LANES  # bytes of a vector of floats

Pair = tuple[Any, Any]


class Unsuitable(RuntimeError):
    """This processor, or this build of PyTorch, cannot run what is written here."""


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

    def read(self, address: Any, kind: Any = FLOATS) -> Any:
        return self.load(self.inttoptr(address, kind.as_pointer()), align=1)

    def write(self, value: Any, address: Any) -> None:
        self.store(value, self.inttoptr(address, value.type.as_pointer()), align=1)

    def pair(self, address: Any, kind: ir.VectorType = FLOATS) -> Pair:
        """Two vectors that lie behind each other."""
        size = VECTOR if kind is FLOATS else LANES * kind.element.width // 8
        return self.read(address, kind), self.read(self.add(address, number(size)), kind)

    def spread(self, value: Any) -> Any:
        """One number in every lane."""
        nothing = ir.Constant(FLOATS, ir.Undefined)
        first = self.insert_element(nothing, value, ir.Constant(WHOLE, 0))
        return self.shuffle_vector(first, nothing, each(0, WHOLES))

    def ask(self, name: str, result: Any, *values: Any) -> Any:
        """One of LLVM's own functions."""
        kind = ir.FunctionType(result, [value.type for value in values])
        return self.call(self.module.globals.get(name) or ir.Function(self.module, kind, name), values)

    def fused(self, x: Any, y: Any, z: Any) -> Any:
        """x · y + z, rounded once."""
        return self.ask(f"llvm.fma.v{LANES}f32", FLOATS, x, y, z)

    def zeros(self, count: int) -> list[Any]:
        """Variables, which the compiler keeps in registers while there are some left."""
        variables = [self.alloca(FLOATS) for _ in range(count)]
        self.clear(variables)
        return variables

    def clear(self, variables: list[Any]) -> None:
        for variable in variables:
            self.store(each(0.0), variable)

    @contextmanager
    def count(self, last: Any, first: Any = None, step: int = 1) -> Iterator[Any]:
        """A loop over first … last - 1."""
        before = self.block
        head, body, after = (self.append_basic_block(name) for name in ("head", "body", "after"))
        self.branch(head)
        self.position_at_end(head)
        index = self.phi(SIZE)
        index.add_incoming(number(0) if first is None else first, before)
        self.cbranch(self.icmp_signed("<", index, last), body, after)
        self.position_at_end(body)
        yield index
        index.add_incoming(self.add(index, number(step)), self.block)
        self.branch(head)
        self.position_at_end(after)


def begin(module: ir.Module, name: str, arguments: int) -> Writer:
    """A function of that many whole numbers; what it does is to be written."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [SIZE] * arguments), name)
    return Writer(function.append_basic_block())


def machine() -> Any:
    """LLVM's picture of this processor; each engine owns one of its own."""
    features = binding.get_host_cpu_features()
    if not features.get("avx2") or not features.get("fma"):
        raise Unsuitable("vectors are written for processors with AVX2")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features.flatten(), opt=3)


def wide_registers() -> bool:
    """AVX-512: twice as wide, and twice as many."""
    return bool(binding.get_host_cpu_features().get("avx512f"))


def compiled(module: ir.Module) -> Any:
    """An engine that holds the module's code, which goes when the engine does."""
    module.triple = binding.get_default_triple()
    parsed, target = binding.parse_assembly(str(module)), machine()
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_unrolling = False  # no gain, and seconds of compiling
    passes = binding.create_pass_builder(target, options)
    passes.getModulePassManager().run(parsed, passes)
    engine = binding.create_mcjit_compiler(parsed, target)
    engine.finalize_object()
    return engine


def entry(engine: Any, name: str, arguments: int) -> Any:
    """A compiled function, to be called with that many whole numbers."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * arguments)(engine.get_function_address(name))
