"""LLVM's own words, of which the attention's vector code is made (vectors.py, few_vectors.py): 16 numbers at a time.

Addresses and distances are int64, in bytes. A `builder` is llvmlite's; a value is what it returns.
"""

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic

LANES = 16
VECTOR_BYTES = 64
_SECOND_CACHE = 2  # LLVM's locality of `prefetcht1`
# Taylor's terms of 2^x: on [-1/2, 1/2] off by at most 4e-5, a fiftieth of what rounding to bfloat16 is off.
_TERMS = (0.009618129107628477, 0.05550410866482158, 0.24022650695910072, 0.6931471805599453, 1.0)

I16, I32, I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
HALVES, WORDS, FLOATS = (ir.VectorType(kind, LANES) for kind in (I16, I32, ir.FloatType()))
QUARTER = ir.VectorType(I32, LANES // 4)
cgutils: Any = _cgutils
Builder = Any
Value = Any


class _BFloat16(ir.Type):  # type: ignore[misc]
    """llvmlite names no bfloat16."""

    def _to_string(self) -> str:
        return "bfloat"


PAIRS = ir.VectorType(_BFloat16(), 2 * LANES)


def load(builder: Builder, address: Value, kind: Any = FLOATS) -> Value:
    """A value of this kind from an address of any even number."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=2)


def store(builder: Builder, vector: Value, address: Value) -> None:
    """Write a vector to an address that 4 divides."""
    builder.store(vector, builder.inttoptr(address, vector.type.as_pointer()), align=4)


def splat(builder: Builder, scalar: Value, kind: Any) -> Value:
    """A vector of one number."""
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, I32(0))
    return builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), words(0))


def shuffle(builder: Builder, one: Value, other: Value, numbers: list[int]) -> Value:
    """The numbered elements of two vectors laid end to end."""
    return builder.shuffle_vector(one, other, ir.VectorType(I32, len(numbers))(numbers))


def bits(builder: Builder, number: Value) -> Value:
    """A vector of the float32 whose bits an int64 holds."""
    return splat(builder, builder.bitcast(builder.trunc(number, I32), ir.FloatType()), FLOATS)


def floats(number: float) -> Value:
    """A constant vector."""
    return ir.Constant(FLOATS, [number] * LANES)


def words(number: int) -> Value:
    """A constant vector of int32."""
    return ir.Constant(WORDS, [number] * LANES)


def fma(builder: Builder, one: Value, other: Value, plus: Value) -> Value:
    """`one * other + plus`, rounded once."""
    return call(builder, "llvm.fma.v16f32", one, other, plus)


def dot_pairs(builder: Builder, total: Value, one: Value, other: Value) -> Value:
    """`vdpbf16ps`: to each float32 of `total` two products of bfloat16 pairs are added; 64 bytes of any kind each."""
    operands = (total, builder.bitcast(one, PAIRS), builder.bitcast(other, PAIRS))
    return call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", *operands)


def exp2(builder: Builder, power: Value) -> Value:
    """2^power, 0 below 2^-126."""
    whole = call(builder, "llvm.nearbyint.v16f32", power)
    part = builder.fsub(power, whole)
    out = floats(_TERMS[0])
    for term in _TERMS[1:]:
        out = fma(builder, out, part, floats(term))
    shifted = builder.shl(builder.fptosi(whole, WORDS), words(23))
    out = builder.bitcast(builder.add(builder.bitcast(out, WORDS), shifted), FLOATS)
    return builder.select(builder.fcmp_ordered("<", power, floats(-126.0)), floats(0.0), out)


def call(builder: Builder, name: str, *args: Value) -> Value:
    """One of LLVM's own functions; all used here return what their first argument is."""
    kind = ir.FunctionType(args[0].type, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def function(code: Callable[..., Any], returns: Any = types.void) -> Any:
    """What numba may call: `code` with int64 for all its arguments but the builder."""
    names = list(inspect.signature(code).parameters)[1:]

    def typed(typing_context: Any, *args: Any) -> Any:
        def generate(context: Any, builder: Builder, signature: Any, args: tuple[Value, ...]) -> Value:
            out = code(builder, *args)
            return context.get_dummy_value() if returns is types.void else out

        return returns(*[types.int64] * len(args)), generate

    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, either) for name in ("typing_context", *names)]
    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(typed)


def _prefetch(builder: Builder, address: Value) -> None:
    """Ask for 64 bytes to be brought to the second cache; whatever is at the address, nothing fails."""
    place = builder.inttoptr(address, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type, I32, I32, I32])
    asked = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(asked, [place, I32(0), I32(_SECOND_CACHE), I32(1)])


prefetch = function(_prefetch)
pointer = function(lambda builder, address: builder.inttoptr(address, ir.IntType(8).as_pointer()), types.voidptr)
