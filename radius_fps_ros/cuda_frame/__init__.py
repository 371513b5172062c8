"""A frame's way on a CUDA device: one upload, every stage on one stream, one download."""

from .pipeline import CudaFramePipeline

__all__ = ["CudaFramePipeline"]
