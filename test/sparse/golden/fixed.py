"""Inputs of the golden file that are computed, not stored: integer arithmetic only, so the same everywhere."""

import zlib
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).with_name("voxel_res_backbone_8x.npz")
SHAPE = (41, 1440, 1440)
LEVELS = ("x_conv1", "x_conv2", "x_conv3", "x_conv4", "encoded")


def uniform(name, shape):
    """Float32 values in [-1, 1) that depend on ``name`` and their place alone."""
    count = int(np.prod(shape))
    value = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    value += np.uint64(zlib.crc32(name.encode())) << np.uint64(32)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    high = ((value ^ (value >> np.uint64(31))) >> np.uint64(40)).astype(np.int64)  # 24 bits
    return ((high - 2**23).astype(np.float32) / np.float32(2**23)).reshape(shape)


def fixed_state(shapes):
    """A state dict for the given ``{name: shape}``, with a batch norm that does something."""
    state = {}
    for name, shape in shapes.items():
        values = uniform(name, shape)
        if name.endswith("running_var") or (len(shape) == 1 and name.endswith("weight")):
            values = np.float32(1) + np.float32(0.5) * values
        elif len(shape) == 1:
            values = np.float32(0.1) * values
        else:  # (C_out, kz, ky, kx, C_in)
            values = values * np.float32(np.sqrt(6 / np.prod(shape[1:])))
        state[name] = values
    return state


def fixed_features(count):
    return uniform("features", (count, 4))


def packed_sites(indices):
    """Sorted sites as differences of their linear index, small enough to store."""
    linear = np.ravel_multi_index(tuple(indices[:, 1:].T.astype(np.int64)), SHAPE)
    return np.diff(linear, prepend=0).astype(np.uint32)


def unpacked_sites(differences):
    linear = np.cumsum(differences.astype(np.int64))
    sites = np.stack(np.unravel_index(linear, SHAPE), axis=1)
    return np.concatenate([np.zeros((len(sites), 1), np.int64), sites], axis=1).astype(np.int32)
