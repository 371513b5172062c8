"""The CUDA backend of the certified Hausdorff distance: rounds on the device, kernels compiled by NVRTC."""

from .kernels import KERNELS
from .wavefront import directed

__all__ = ["KERNELS", "directed"]
