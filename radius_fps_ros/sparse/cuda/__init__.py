"""The CUDA backend: kernels in the .cu files beside this one, compiled by NVRTC and launched through CuPy."""

from .backbone import CudaBackbone
from .convolve import convolve
from .interpolate import interpolate
from .rulebook import build_rulebook
from .voxelize import voxelize

__all__ = ["CudaBackbone", "build_rulebook", "convolve", "interpolate", "voxelize"]
