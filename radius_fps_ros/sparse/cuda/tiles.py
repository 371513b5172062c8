"""The shapes of a block in the two kernels of the implicit GEMM, and which of them runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class GemmTile:
    """One block of ``implicit_gemm.cu``: output rows and channels, its warps, and its copy pipeline."""

    rows: int
    columns: int
    warps_r: int
    warps_c: int
    split: int
    ring: int
    depth: int = 3

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps_r * self.warps_c * self.split

    def span(self, log_pieces: int) -> int:
        """Units of a stage for each group of warps: the ring turns a whole number of times in them."""
        return max(1, self.ring // max(1, (1 << log_pieces) // 4))

    def shared_bytes(self, volume: int, log_pieces: int) -> int:
        """Dynamic shared memory of a block that convolves with ``volume`` kernel offsets."""
        pieces = 1 << log_pieces
        sharing, chunks = max(1, 4 // pieces), max(1, pieces // 4)
        units = self.span(log_pieces) * self.split
        stages = 64 * self.depth * units * chunks * self.columns
        exchange = 4 * self.split * self.rows * self.columns if self.split > 1 else 0
        listed = (units + (self.ring // chunks + 2) * self.split) * sharing
        return max(stages, exchange) + _offset_list_bytes(self.rows, volume, listed)

    def macros(self, half: bool, log_pieces: int, out_channels: int) -> dict[str, int]:
        """The macros that ``implicit_gemm.cu`` wants."""
        return {
            "HALF": int(half),
            "LOG_PIECES": log_pieces,
            "OUT": out_channels,
            "ROWS": self.rows,
            "COLS": self.columns,
            "WARPS_R": self.warps_r,
            "WARPS_C": self.warps_c,
            "SPLIT": self.split,
            "RING": self.ring,
            "DEPTH": self.depth,
            "SPAN": self.span(log_pieces),
        }


@dataclass(frozen=True)
class WarpgroupTile:
    """One block of ``warpgroup_gemm.cu``: output rows, chunks of a stage and stages of its copy pipeline."""

    rows: int
    stage: int
    depth: int
    columns: ClassVar[int] = 64

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 2 * self.rows

    def shared_bytes(self, volume: int, log_pieces: int) -> int:
        """Dynamic shared memory of a block that convolves with ``volume`` kernel offsets."""
        words = self.stage * (self.depth * (self.rows + self.columns) + 2 * self.columns)
        return 64 * words + _offset_list_bytes(self.rows, volume, self.stage)

    def macros(self, half: bool, log_pieces: int, out_channels: int) -> dict[str, int]:
        """The macros that ``warpgroup_gemm.cu`` wants."""
        return {
            "LOG_PIECES": log_pieces,
            "OUT": out_channels,
            "ROWS": self.rows,
            "STAGE": self.stage,
            "DEPTH": self.depth,
        }


def _offset_list_bytes(rows: int, volume: int, padding: int) -> int:
    """What ``list_offsets`` needs: the table, the list and the live rows by offset."""
    return 4 * (volume + 1) * rows + 4 * (volume + padding) + (volume + 1) * rows // 32


# The fastest of those tried on an H200 (benchmarks/NOTES.md), by type (float32, float16) and output channels.
GEMM_TILES = (
    {
        16: GemmTile(128, 16, 4, 1, split=2, ring=2),
        32: GemmTile(128, 32, 4, 1, split=1, ring=2),
        64: GemmTile(64, 64, 2, 2, split=1, ring=2),
        128: GemmTile(64, 64, 2, 2, split=1, ring=2, depth=2),
    },
    {
        16: GemmTile(128, 16, 4, 1, split=1, ring=2),
        32: GemmTile(128, 32, 4, 1, split=1, ring=2),
        64: GemmTile(128, 64, 4, 2, split=1, ring=2),
        128: GemmTile(64, 64, 2, 2, split=1, ring=4),
    },
)
# Likewise for float32 and 64 or more output channels: the first where all its blocks run at once, each on a
# multiprocessor of its own, else the second, of which a multiprocessor has several.
WARPGROUP_TILES = (WarpgroupTile(128, stage=4, depth=3), WarpgroupTile(64, stage=2, depth=3))
