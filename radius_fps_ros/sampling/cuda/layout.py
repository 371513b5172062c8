"""The device memory of each method: which arrays, and how large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...errors import InputError

TILE = 32  # points, one a lane
THREADS = 512  # of a block of order.cu, radius.cu and lookahead.cu
WARPS = THREADS // 32
MOST_BLOCKS = 256  # lookahead.cu
DIGITS = 256  # order.cu sorts by 8 bits at a time
VOXEL_WINDOW = 64  # radius.cu

# lookahead.cu
BOARD = 768
OFFERS = 128
PENDING = 4096
ROUND_BYTES = 24
# 64-bit words of a block's mail.
OFFER_WORDS = 2 * 6 * OFFERS
COUNT_WORDS = 4
SAMPLE_WORDS = OFFERS // 4
BEST_WORDS = 4  # radius.cu


@dataclass(frozen=True)
class Shape:
    """A launch of single_block.cu or cluster.cu: blocks, their threads, and the points a thread holds in registers.

    ``held`` 0 stands for any number of points, whose keys are in memory.
    """

    kernel: str
    blocks: int
    threads: int
    held: int

    def takes(self, n_points: int) -> bool:
        """Whether a cloud fits."""
        return not self.held or n_points <= self.most_points

    @property
    def most_points(self) -> int:
        """How many points fit into the registers."""
        return self.blocks * self.threads * self.held


# The smallest first. More threads cost time at every sample, more points a thread only where the cloud needs them.
SHAPES = {
    "single_block": (
        *(Shape(f"single_block_{t}_{held}", 1, t, held) for t, held in ((128, 8), (256, 8), (256, 16), (512, 16))),
        Shape("single_block_1024", 1, 1024, 0),
    ),
    "cluster": tuple(
        Shape(f"cluster_{t}_{held}", 8, t, held)
        for t, held in ((128, 4), (128, 8), (128, 16), (128, 32), (256, 24), (256, 32))
    ),
}
MOST_IN_CLUSTER = SHAPES["cluster"][-1].most_points


def shape_for(method: str, n_points: int) -> Shape:
    """The shape that takes a cloud, of ``single_block`` or ``cluster``."""
    return next(shape for shape in SHAPES[method] if shape.takes(n_points))


SUMMARY = np.dtype(
    [("count", "<u4"), ("coverage", "<f4"), ("rounds", "<u4"), ("voxels", "<u4"), ("updates", "<u8")], align=True
)

SUMMARY_WORDS = SUMMARY.itemsize // 8

# Name to number of items and their type. "mail" holds 64-bit words, 0 when the kernels start; `mail_parts` names them.
Layout = dict[str, tuple[int, type]]


def mail_parts(method: str, blocks: int) -> dict[str, int]:
    """The parts of a method's mail in their order, and their words. What blocks send is aligned to 16 bytes."""
    parts = {"summary": SUMMARY_WORDS}
    if method in ("radius", "lookahead"):
        parts |= {"usable": 1, "order arrivals": 1, "arrivals": 1, "voxel count": 1, "padding": 1}
    if method == "radius":
        parts["best mail"] = BEST_WORDS * blocks
    elif method == "lookahead":
        words = {"offers": OFFER_WORDS, "count mail": COUNT_WORDS, "sample mail": SAMPLE_WORDS}
        parts |= {name: size * blocks for name, size in words.items()}
    return parts


def blocks_for(method: str, n_points: int, multiprocessors: int) -> int:
    """Blocks of a cooperative launch: at most one a multiprocessor, and no more than have a tile for each warp.

    ``lookahead`` takes twice as many, measured up to 16 % faster: its warps do more than visit tiles.
    """
    enough = tile_blocks(n_points) * (2 if method == "lookahead" else 1)
    return min(enough, multiprocessors, MOST_BLOCKS)


def tile_blocks(n_points: int) -> int:
    """How many blocks have a tile for each warp."""
    return max(1, -(-n_points // (TILE * WARPS)))


def tiles_for(n_points: int) -> int:
    """How many tiles hold ``n_points``."""
    return -(-n_points // TILE)


def most_groups(n_points: int, blocks: int) -> int:
    """How many groups of at most 32 tiles lookahead.cu may form of at most ``n_points`` finite points."""
    tiles = tiles_for(n_points)
    warps = blocks * WARPS
    return min(tiles, warps * -(-tiles // (warps * 32)))


def max_voxel_cells(n_points: int) -> int:
    """How many spherical voxels the space is cut into, the rule of RadiusFPS."""
    return max(256, n_points // 32)


def voxels_per_warp(n_points: int, blocks: int) -> int:
    """Room for a warp's voxels: one begins where a cell or a window of places does."""
    most = min(n_points, max_voxel_cells(n_points) + 1 + n_points // VOXEL_WINDOW + 1)
    return -(-most // (blocks * WARPS))


def keys_layout(n_points: int, n_samples: int, blocks: int) -> Layout:
    """Of ``brute``: a key a point."""
    return {"keys": (n_points, np.uint32)}


def cluster_layout(n_points: int, n_samples: int, blocks: int) -> Layout:
    """Of ``cluster``: registers hold the keys."""
    return {}


def single_block_layout(n_points: int, n_samples: int, blocks: int) -> Layout:
    """Of ``single_block``: a key a point where registers do not hold them."""
    layout = cluster_layout if shape_for("single_block", n_points).held else keys_layout
    return layout(n_points, n_samples, blocks)


def sorted_layout(n_points: int, n_samples: int, blocks: int) -> Layout:
    """Of order.cu; ``xyz`` serves the sort as scratch before it is filled."""
    tiles = tiles_for(n_points)
    return {
        "items": (n_points, np.uint64),
        "xyz": (3 * TILE * tiles, np.float32),
        "keys": (TILE * tiles, np.uint32),
        "tile boxes": (6 * tiles, np.float32),
        "tile keys": (tiles, np.uint32),
        "digit counts": (blocks * DIGITS, np.uint32),
    }


def radius_layout(n_points: int, n_samples: int, blocks: int) -> Layout:
    """Of ``radius``."""
    places = voxels_per_warp(n_points, blocks) * blocks * WARPS
    return {
        **sorted_layout(n_points, n_samples, blocks),
        "voxel begin": (places, np.uint32),
        "voxel size": (places, np.uint32),
        "voxel boxes": (6 * places, np.float32),
        "voxel ranks": (places, np.uint64),
    }


def lookahead_layout(n_points: int, n_samples: int, blocks: int) -> Layout:
    """Of ``lookahead``. Samples are also drawn ahead of their turn; a blocker stands for at most a tile's points."""
    drawn = min(n_points, n_samples + PENDING + (TILE + 1) * BOARD)
    return {
        **sorted_layout(n_points, n_samples, blocks),
        "group boxes": (6 * most_groups(n_points, blocks), np.float32),
        "drawn": (drawn, np.uint64),
        "history": (drawn * ROUND_BYTES, np.uint8),
    }


LAYOUTS: dict[str, Callable[[int, int, int], Layout]] = {
    "brute": keys_layout,
    "single_block": single_block_layout,
    "cluster": cluster_layout,
    "radius": radius_layout,
    "lookahead": lookahead_layout,
}


def full_layout(method: str, n_points: int, n_samples: int, blocks: int) -> Layout:
    """All that an engine holds for a method, its answer included."""
    return {
        **LAYOUTS[method](n_points, n_samples, blocks),
        "mail": (sum(mail_parts(method, blocks).values()), np.uint64),
        "indices": (n_samples, np.int64),
    }


def device_bytes(method: str, n_points: int, n_samples: int, *, multiprocessors: int | None = None) -> int:
    """Device memory that a `CudaEngine` holds for a cloud, beside the cloud itself (12 bytes a point).

    Args:
        method: ``"brute"`` (4 bytes a point), ``"radius"`` (about 28), ``"lookahead"`` (about 25), ``"cluster"`` (0) or
            ``"single_block"`` (0 up to 8,192 points, else 4).
        n_points: points of the cloud.
        n_samples: samples asked for; ``lookahead`` takes 40 bytes for each.
        multiprocessors: of the device; ``None`` asks the current one.

    Raises:
        InputError: no such method.
    """
    if method not in LAYOUTS:
        raise InputError(f"method must be one of {', '.join(LAYOUTS)}, not {method!r}")
    if multiprocessors is None:
        import cupy

        multiprocessors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    layout = full_layout(method, n_points, n_samples, blocks_for(method, n_points, multiprocessors))
    return sum(size * np.dtype(dtype).itemsize for size, dtype in layout.values())
