"""The register tile of the CPU convolution, written as LLVM IR.

Numba cannot keep a tile of sums in registers (its arrays live in memory), and a BLAS call per kernel offset needs
gathered copies and its own threads. So this emits the inner loop itself: one vector of sums for each of ``ROWS``
output rows, one fused multiply-add each. LLVM maps the vectors to what the processor has.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _lanes() -> int:
    features = llvmlite.binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 16
    return 8 if features.get("avx") else 4


ROWS = 8  # enough independent sums to hide the latency of a multiply-add, few enough for 16 registers
COLUMNS = _lanes()


@intrinsic
def multiply_tile(
    typingctx: Any, features: Any, in_rows: Any, weight: Any, out: Any, out_rows: Any, column: Any, depth: Any
) -> Any:
    """``out[out_rows[i], column:column + COLUMNS] += features[in_rows[i], :depth] @ weight`` for ``ROWS`` rows i.

    ``features`` (N, depth), ``out`` (M, width) and ``weight`` (depth, COLUMNS) are row-major float32; ``in_rows`` and
    ``out_rows`` are contiguous int32 of at least ``ROWS`` elements; ``depth`` is at least 1. Nothing is checked.
    """
    signature = types.void(features, in_rows, weight, out, out_rows, column, depth)

    def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
        integer, single, vector = ir.IntType(64), ir.FloatType(), ir.VectorType(ir.FloatType(), COLUMNS)
        undefined = ir.Constant(vector, ir.Undefined)
        first_lane = ir.Constant(ir.VectorType(ir.IntType(32), COLUMNS), None)
        # fmuladd, not fma: a processor without the fused instruction gets two instructions, not a library call.
        name = f"llvm.fmuladd.v{COLUMNS}f32"
        multiply_add = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)

        def array(position: int) -> Any:
            return context.make_array(sig.args[position])(context, builder, args[position])

        def element(pointer: Any, offset: Any, kind: Any) -> Any:
            return builder.bitcast(builder.gep(pointer, [offset]), kind.as_pointer())

        def row(matrix: Any, rows: Any, i: int) -> Any:
            number = builder.sext(builder.load(builder.gep(rows, [integer(i)])), integer)
            stride = cgutils.unpack_tuple(builder, matrix.strides)[0]
            return element(
                builder.bitcast(matrix.data, ir.IntType(8).as_pointer()), builder.mul(number, stride), single
            )

        source, target, weights = array(0), array(3), array(2).data
        inputs = [row(source, array(1).data, i) for i in range(ROWS)]
        outputs = [element(row(target, array(4).data, i), args[5], vector) for i in range(ROWS)]

        entry, loop, done = builder.block, builder.append_basic_block("depth"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        step = builder.phi(integer)
        sums = [builder.phi(vector) for _ in range(ROWS)]
        loaded = builder.load(element(weights, builder.mul(step, integer(COLUMNS)), vector), align=4)
        for i in range(ROWS):
            value = builder.load(element(inputs[i], step, single))
            spread = builder.shuffle_vector(
                builder.insert_element(undefined, value, ir.IntType(32)(0)), undefined, first_lane
            )
            sums[i].add_incoming(ir.Constant(vector, None), entry)
            sums[i].add_incoming(builder.call(multiply_add, [spread, loaded, sums[i]]), loop)
        following = builder.add(step, integer(1))
        step.add_incoming(integer(0), entry)
        step.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, args[6]), loop, done)

        # Added one row after the other: rows of the padding may be the same.
        builder.position_at_end(done)
        for i in range(ROWS):
            total = sums[i].incomings[1][0]
            builder.store(builder.fadd(builder.load(outputs[i], align=4), total), outputs[i], align=4)
        return context.get_dummy_value()

    return signature, generate
