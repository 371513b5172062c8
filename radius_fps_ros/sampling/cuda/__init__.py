"""Farthest point sampling on CUDA devices, through CuPy."""

from .engine import CudaEngine, Output, read_output
from .kernels import KERNELS
from .layout import device_bytes

__all__ = ["KERNELS", "CudaEngine", "Output", "device_bytes", "read_output"]
