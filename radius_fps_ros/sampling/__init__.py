"""Exact farthest point sampling on the CPU and on CUDA."""

from .fps import Sampler, farthest_point_sampling
from .result import SamplingResult, SamplingStats

__all__ = ["Sampler", "SamplingResult", "SamplingStats", "farthest_point_sampling"]
