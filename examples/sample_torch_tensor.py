"""Sample a PyTorch tensor, on the CPU or on a CUDA device, and index it with the result: no point is copied.

python examples/sample_torch_tensor.py

Needs PyTorch (`pip install torch`), and for a CUDA tensor CuPy (in a checkout `pip install '.[cuda12]'` or
`'.[cuda13]'`). DLPack hands the memory of one library to the other and lets each wait for the other's stream.
"""

import numpy as np
import torch

from radius_fps_ros.sampling import farthest_point_sampling


def sample(points, n_samples):
    """Indices (M,) int64 of the farthest point samples of an (N, 3) float32 tensor, on the tensor's own device."""
    if points.is_cuda:
        import cupy as xp
    else:
        xp = np
    array = xp.from_dlpack(points)
    result = farthest_point_sampling(array, n_samples)
    indices = torch.from_dlpack(result.indices)
    assert address(array) == points.data_ptr()
    assert address(result.indices) == indices.data_ptr()
    return indices


def address(array):
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
    points = torch.rand(100_000, 3, generator=torch.Generator().manual_seed(0)).to(device)
    indices = sample(points, 4096)
    print(
        f"{device}: {tuple(points[indices].shape)} samples on {indices.device}, first {indices[:4].tolist()}, no copy"
    )
