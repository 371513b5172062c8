"""The implicit GEMM on tensor cores: its tiles, and how exact its float32 is."""

import sys

import numpy as np
import pytest

from radius_fps_ros.sparse import ConvGeometry, build_rulebook
from radius_fps_ros.sparse.cuda.tiles import WARPGROUP_TILES

from ..reference import random_sites

pytestmark = pytest.mark.gpu

SHAPE = (6, 12, 14)
SUBM, DOWN = ConvGeometry.make(3, subm=True), ConvGeometry.make(3, 2, 1)


def make_rulebook(rng, count, geometry):
    import cupy

    sites = cupy.asarray(random_sites(rng, SHAPE, 1, count))
    shape = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation)
    return build_rulebook(sites, SHAPE, 1, *shape, geometry.subm)


def in_float64(features, weight, rulebook):
    neighbours = rulebook.neighbours.get()
    out = np.zeros((neighbours.shape[1], weight.shape[2]))
    for rows, matrix in zip(neighbours, weight, strict=True):
        found = rows >= 0
        out[found] += features[rows[found]].astype(np.float64) @ matrix.astype(np.float64)
    return out


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.mark.parametrize("channels", [16, 128])
@pytest.mark.parametrize("scale", [1e-28, 1.0, 1e28])
def test_float32_errs_by_less_than_a_millionth_at_any_magnitude(channels, scale):
    """The parts of a number are tf32 and bfloat16, which have the exponents of float32."""
    import cupy

    from radius_fps_ros.sparse.cuda import convolve

    rng = np.random.default_rng(0)
    rulebook = make_rulebook(rng, 900, SUBM)
    features = (scale * np.abs(rng.standard_normal((900, channels)))).astype(np.float32)
    weight = (rng.standard_normal((27, channels, 64)) / np.sqrt(27 * channels)).astype(np.float32)
    found = convolve(cupy.asarray(features), weight, rulebook, algo="implicit_gemm").get() / scale
    exact = in_float64(features, weight, rulebook) / scale
    assert rms(found - exact) < 1e-6 * rms(exact)
    assert np.abs(found - exact).max() < 2e-6 * np.abs(exact).max()


@pytest.mark.parametrize("tile", WARPGROUP_TILES, ids=str)
@pytest.mark.parametrize("geometry", [SUBM, DOWN], ids=["subm", "down"])
@pytest.mark.parametrize(("depth", "width"), [(16, 64), (24, 100), (64, 128), (128, 256)])
@pytest.mark.parametrize("count", [1, 130, 700])
def test_every_tile_of_warp_groups(monkeypatch, tile, geometry, depth, width, count):
    """Other devices than those of compute capability 9.0 must pass, too, with the tiles that they have."""
    import cupy

    from radius_fps_ros.sparse.cuda import convolve

    monkeypatch.setattr(sys.modules["radius_fps_ros.sparse.cuda.convolve"], "WARPGROUP_TILES", (tile,))
    rng = np.random.default_rng(count)
    rulebook = make_rulebook(rng, count, geometry)
    features = rng.standard_normal((count, depth)).astype(np.float32)
    weight = (rng.standard_normal((27, depth, width)) / np.sqrt(27 * depth)).astype(np.float32)
    bias = rng.standard_normal(width).astype(np.float32)
    residual = rng.standard_normal((rulebook.neighbours.shape[1], width)).astype(np.float32)
    found = convolve(
        cupy.asarray(features),
        weight,
        rulebook,
        bias=bias,
        residual=cupy.asarray(residual),
        relu=True,
        algo="implicit_gemm",
    ).get()
    exact = np.maximum(in_float64(features, weight, rulebook) + bias + residual, 0)
    assert np.abs(found - exact).max() < 2e-6 * np.abs(exact).max()
