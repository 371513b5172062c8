"""How all kernels are compiled, how they learn that they shall end early, and what they report."""

# Numba's decorators hide what the kernels return.
# mypy: warn-return-any=False

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from ...device.jit import cached_jit

# Fused multiply-adds round less often than rounding.py assumes, so contraction keeps its bounds valid.
jit = cached_jit(__file__, error_model="numpy", fastmath={"contract"})

# A kernel's report: farthest distance, its x, y, z, largest closed bound, triangles, row nearest to the farthest point.
ROW_OF_FARTHEST = 6
NOTHING = (-1.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0)


def _load(array: NDArray) -> int:
    """First element of an int64 array, from memory each time: the compiler may not move it out of a loop."""
    return array[0]


@intrinsic
def _load_atomic(typingctx: Any, array: Any) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load_atomic(data, "monotonic", 8)

    return types.int64(array), generate


@overload(_load)  # type: ignore[untyped-decorator]
def _compiled_load(array: Any) -> Any:
    def load(array: Any) -> Any:
        return _load_atomic(array)

    return load


@jit
def stopped(stop: NDArray) -> bool:
    """Whether the caller gave up: what a kernel returns after that is of no use, but it returns at once."""
    return _load(stop) != 0
