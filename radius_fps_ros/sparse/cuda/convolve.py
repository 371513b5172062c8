"""Sparse convolution on CUDA: implicit GEMM on tensor cores, or gather - product - scatter."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...device import KernelFile
from ...errors import InputError
from ..rulebook import Rulebook
from .kernels import (
    KERNEL_IMPLICIT_GEMM,
    KERNEL_NATIVE,
    KERNEL_WARPGROUP_GEMM,
    aligned,
    blocks,
    compute_capability,
    find_function,
    launch,
    multiprocessors,
    shared_limit,
)
from .tiles import GEMM_TILES, WARPGROUP_TILES, GemmTile, WarpgroupTile

_NATIVE_TILE = 64  # TILE of native.cu


def convolve(
    features: Any,
    weight: Any,
    rulebook: Rulebook,
    *,
    bias: Any = None,
    residual: Any = None,
    relu: bool = False,
    algo: str = "auto",
) -> Any:
    """``relu(conv(features) + bias + residual)`` (N_out, C_out) in the type of ``features``, summed in float32.

    ``algo``: ``"implicit_gemm"`` (compute capability 8.0 or newer), ``"native"``, or ``"auto"``: the former where it
    runs. Both sum in a fixed order: the same input gives the same bits.

    Raises:
        InputError: ``implicit_gemm`` is asked for where it cannot run.
    """
    import cupy

    volume, in_channels, out_channels = weight.shape
    n_out = rulebook.neighbours.shape[1]
    chosen = choose_algorithm(algo, volume, in_channels, out_channels, features.dtype)
    weight = cupy.asarray(weight, dtype=cupy.float32)
    bias = cupy.zeros(out_channels, np.float32) if bias is None else cupy.asarray(bias, dtype=cupy.float32)
    if chosen == "native":
        pairs = PairLists(volume, n_out)
        pairs.fill(rulebook.neighbours, None, n_out)
        out = cupy.empty((n_out, out_channels), dtype=features.dtype)
        launch_native(
            cupy.ascontiguousarray(features),
            cupy.ascontiguousarray(weight, dtype=features.dtype),
            cupy.ascontiguousarray(bias),
            None if residual is None else cupy.ascontiguousarray(residual, dtype=features.dtype),
            out,
            pairs,
            cupy.empty((n_out, out_channels), dtype=cupy.float32),
            None,
            relu,
        )
        return out
    in_width, width = input_width(in_channels, features.dtype), output_width(out_channels)
    out = cupy.empty((n_out, width), dtype=features.dtype)
    launch_implicit_gemm(
        _padded(features, in_width),
        pack_weight(weight, in_width, width, features.dtype),
        _padded(bias[None], width),
        None if residual is None else _padded(residual.astype(features.dtype, copy=False), width),
        out,
        rulebook.neighbours,
        None,
        n_out,
        relu,
    )
    return out if width == out_channels else cupy.ascontiguousarray(out[:, :out_channels])


def choose_algorithm(algo: str, volume: int, in_channels: int, out_channels: int, dtype: Any) -> str:
    """``"implicit_gemm"`` or ``"native"``.

    Raises:
        InputError: ``implicit_gemm`` is asked for where it cannot run.
    """
    if algo == "native":
        return algo
    fits = bool(fitting_tiles(output_width(out_channels), volume, input_width(in_channels, dtype), dtype))
    if fits and compute_capability() >= 80:
        return "implicit_gemm"
    if algo == "implicit_gemm":
        large = f"{volume} kernel offsets of {in_channels} channels are too many"
        reason = "it needs compute capability 8.0 or newer" if fits else large
        raise InputError(f"algo='implicit_gemm' cannot run here ({reason}); use 'native' or 'auto'")
    return "native"


def input_width(channels: int, dtype: Any) -> int:
    """Channels per row that the implicit GEMM reads: a power of two of 16-byte pieces."""
    per_piece = 16 // np.dtype(dtype).itemsize
    pieces = -(-channels // per_piece)
    return int(per_piece << (pieces - 1).bit_length())


def output_width(channels: int) -> int:
    """Channels per row that the implicit GEMM writes: a power of two, at least its smallest tile."""
    return max(16, 1 << (channels - 1).bit_length())


def log_pieces(width: int, dtype: Any) -> int:
    """Binary logarithm of the 16-byte pieces of a row of ``input_width`` channels."""
    return int(width * np.dtype(dtype).itemsize // 16).bit_length() - 1


def fitting_tiles(width: int, volume: int, in_width: int, dtype: Any) -> list[GemmTile] | list[WarpgroupTile]:
    """Tiles for ``width`` output channels whose shared memory a block of this device may have, best first."""
    half, pieces, limit = np.dtype(dtype) == np.float16, log_pieces(in_width, dtype), shared_limit()
    if not half and compute_capability() == 90 and pieces >= 2 and width >= WarpgroupTile.columns:
        fitting = [tile for tile in WARPGROUP_TILES if tile.shared_bytes(volume, pieces) <= limit]
        if fitting:
            return fitting
    return [
        tile
        for out, tile in sorted(GEMM_TILES[int(half)].items(), reverse=True)
        if min(width, 32) <= out <= width and tile.shared_bytes(volume, pieces) <= limit
    ]


def _usable_tiles(width: int, volume: int, in_width: int, dtype: Any) -> list[GemmTile] | list[WarpgroupTile]:
    """The fitting tiles among which the number of rows decides: of `implicit_gemm.cu` always the best."""
    tiles = fitting_tiles(width, volume, in_width, dtype)
    return tiles if isinstance(tiles[0], WarpgroupTile) else tiles[:1]


def _kernel_of(tile: GemmTile | WarpgroupTile) -> tuple[KernelFile, str]:
    if isinstance(tile, WarpgroupTile):
        return KERNEL_WARPGROUP_GEMM, "warpgroup_gemm"
    return KERNEL_IMPLICIT_GEMM, "implicit_gemm"


def pack_weight(weight: Any, in_width: int, out_width: int, dtype: Any) -> Any:
    """Weights (K, C_in, C_out) in the order in which the kernel of `fitting_tiles` reads them, zero where padded.

    An offset more than there are, with zero weights, stands at the end. For ``implicit_gemm.cu`` one 16-byte word is
    what a thread gives the tensor core at a time: of a piece of input channels and of two output channels. For
    ``warpgroup_gemm.cu`` it is a row of the matrix that the tensor cores read: of one output channel.
    """
    import cupy

    volume, in_channels, out_channels = weight.shape
    padded = cupy.zeros((volume + 1, in_width, out_width), dtype=dtype)
    padded[:volume, :in_channels, :out_channels] = cupy.asarray(weight)
    per_piece = 16 // np.dtype(dtype).itemsize
    pieces, tiles = in_width // per_piece, min(2, out_width // 16)
    if isinstance(fitting_tiles(out_width, volume, in_width, dtype)[0], WarpgroupTile):
        # Input channels are (chunk, piece, step, half): a thread takes one piece of a row, and a step of the product
        # two elements of each piece.
        split = _rounded_by_truncation(padded).reshape(volume + 1, pieces // 4, 4, 2, 2, out_width)
        return cupy.ascontiguousarray(split.transpose(0, 1, 3, 4, 5, 2)).reshape(volume + 1, -1)
    # A piece is (step, part, element) and output channels are (group, g, tile, half): see the kernel.
    split = padded.reshape(volume + 1, pieces, 2, 2, per_piece // 4, out_width // (16 * tiles), 8, tiles, 2)
    if pieces < 4:
        return cupy.ascontiguousarray(split.transpose(0, 1, 5, 7, 2, 6, 3, 8, 4)).reshape(volume + 1, -1)
    split = split.reshape(volume + 1, pieces // 4, 4, *split.shape[2:])
    return cupy.ascontiguousarray(split.transpose(0, 1, 6, 8, 3, 7, 2, 4, 9, 5)).reshape(volume + 1, -1)


def _rounded_by_truncation(values: Any) -> Any:
    """float32 words whose upper 19 bits are the nearest tf32, because tensor cores ignore the 13 bits below.

    Those count, from 4096, the units in the last place that are left to ``values``: all of them, but for half a unit
    where rounding up reached the next power of two.
    """
    import cupy

    words = values.view(cupy.uint32)
    magnitude = words & np.uint32(0x7FFFFFFF)
    nearest = magnitude + np.uint32(0x1000) & np.uint32(0xFFFFE000)
    unit = (nearest & np.uint32(0x7F800000)).view(cupy.float32) * np.float32(2**-23)
    rest = magnitude.view(cupy.float32) - nearest.view(cupy.float32)
    units = cupy.where(unit > 0, cupy.rint(rest / cupy.where(unit > 0, unit, np.float32(1))), np.float32(0))
    packed = nearest.view(cupy.int32) + units.astype(cupy.int32) + np.int32(0x1000)
    return (packed.view(cupy.uint32) | words & np.uint32(0x80000000)).view(cupy.float32)


def load_implicit_gemm(volume: int, in_width: int, width: int, dtype: Any) -> None:
    """Load every kernel that `launch_implicit_gemm` may choose, so that no frame waits for one."""
    pieces = log_pieces(in_width, dtype)
    for tile in _usable_tiles(width, volume, in_width, dtype):
        kernel, name = _kernel_of(tile)
        macros = tile.macros(np.dtype(dtype) == np.float16, pieces, width)
        find_function(kernel, name, shared=tile.shared_bytes(volume, pieces), **macros)


def launch_implicit_gemm(
    features: Any,
    packed: Any,
    bias: Any,
    residual: Any,
    out: Any,
    neighbours: Any,
    count: Any,
    limit: int,
    relu: bool,
) -> None:
    """One convolution; ``features``, ``residual`` and ``out`` have padded widths (see ``input_width``).

    ``packed`` comes from `pack_weight`; ``count`` on the device says how many of the ``limit`` rows there are.
    """
    volume, pitch = neighbours.shape
    width = out.shape[1]
    pieces = log_pieces(features.shape[1], features.dtype)
    tile, *others = _usable_tiles(width, volume, features.shape[1], features.dtype)
    expected = limit * 4 // 5  # of a network's capacities, which have a quarter to spare
    if others and blocks(expected, tile.rows) * (width // tile.columns) > multiprocessors():
        tile = others[0]
    kernel, name = _kernel_of(tile)
    launch(
        kernel,
        name,
        (blocks(limit, tile.rows), width // tile.columns),
        (
            features,
            packed,
            bias,
            residual,
            out,
            neighbours,
            np.int64(pitch),
            count,
            limit,
            volume,
            int(relu),
        ),
        threads=tile.threads,
        shared=tile.shared_bytes(volume, pieces),
        **tile.macros(out.dtype == np.float16, pieces, width),
    )


class PairLists:
    """Pairs by kernel offset, as the native algorithm wants them, with room for ``capacity`` output rows."""

    def __init__(self, volume: int, capacity: int) -> None:
        import cupy

        self.in_rows = cupy.empty((volume, capacity), dtype=cupy.int32)
        self.out_rows = cupy.empty((volume, capacity), dtype=cupy.int32)
        self.counts = cupy.empty(volume, dtype=cupy.int32)

    def fill(self, neighbours: Any, count: Any, limit: int) -> None:
        """List the pairs of a neighbour table (K, capacity)."""
        volume, pitch = neighbours.shape
        launch(
            KERNEL_NATIVE,
            "list_pairs",
            (volume,),
            (neighbours, np.int64(pitch), count, limit, self.in_rows, self.out_rows, self.counts),
            threads=1024,
            HALF=0,
        )


def launch_native(
    features: Any,
    weight: Any,
    bias: Any,
    residual: Any,
    out: Any,
    pairs: PairLists,
    sums: Any,
    count: Any,
    relu: bool,
) -> None:
    """One convolution, offset by offset; ``weight`` (K, C_in, C_out) is in the type of ``features``."""
    import cupy

    half = int(out.dtype == np.float16)
    limit, out_channels = out.shape
    in_channels = features.shape[1]
    sums.data.memset_async(0, sums.nbytes, cupy.cuda.get_current_stream())
    for offset in range(len(weight)):
        launch(
            KERNEL_NATIVE,
            "gather_gemm_scatter",
            (blocks(limit, _NATIVE_TILE), blocks(out_channels, _NATIVE_TILE)),
            (
                features,
                weight[offset],
                pairs.in_rows[offset],
                pairs.out_rows[offset],
                pairs.counts[offset:],
                in_channels,
                out_channels,
                sums,
            ),
            HALF=half,
        )
    arguments = (sums, bias, residual, out, count, limit, out_channels, int(relu))
    launch(KERNEL_NATIVE, "finish", (blocks(limit * out_channels),), arguments, HALF=half)


def _padded(array: Any, width: int) -> Any:
    import cupy

    rows, channels = array.shape
    if channels == width:
        return aligned(array)
    padded = cupy.zeros((rows, width), dtype=array.dtype)
    padded[:, :channels] = array
    return padded
