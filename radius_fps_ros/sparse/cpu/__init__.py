"""The CPU backend: Numba kernels over NumPy arrays."""

from .backbone import CpuBackbone
from .convolve import convolve
from .interpolate import interpolate
from .rulebook import build_rulebook
from .voxelize import voxelize

__all__ = ["CpuBackbone", "build_rulebook", "convolve", "interpolate", "voxelize"]
