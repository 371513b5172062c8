"""Farthest point sampling on the CPU: NumPy and Numba."""

from .engine import CpuEngine

__all__ = ["CpuEngine"]
