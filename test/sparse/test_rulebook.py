"""Rulebooks against a dictionary of sites, and their invariants."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from radius_fps_ros.errors import InputError
from radius_fps_ros.sparse import ConvGeometry, build_rulebook

from .cases import BATCH, GEOMETRIES, SHAPE, SITES
from .reference import random_sites, reference_rulebook


def built(backend, indices, shape, batch_size, geometry, grid=None):
    parts = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation, geometry.subm)
    return build_rulebook(backend.to_device(indices), shape, batch_size, *parts, grid=grid)


def assert_matches_reference(backend, rulebook, indices, shape, geometry):
    outputs, pairs = reference_rulebook(indices, shape, geometry)
    found, count = backend.to_host(rulebook.indice_pairs), backend.to_host(rulebook.indice_num)
    assert rulebook.out_spatial_shape == geometry.output_shape(shape)
    assert backend.to_host(rulebook.out_indices).tolist() == [list(site) for site in outputs]
    assert found.shape == (2, geometry.volume, len(indices))
    assert found.dtype == count.dtype == np.int32
    for k, expected in enumerate(pairs):
        assert count[k] == len(expected)
        assert found[:, k, : count[k]].T.tolist() == [list(pair) for pair in expected]
        assert (found[:, k, count[k] :] == -1).all()


@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_pairs_are_those_of_the_definition(backend, name, sites):
    indices, geometry = SITES[sites](), GEOMETRIES[name]
    rulebook = built(backend, indices, SHAPE, BATCH, geometry)
    assert_matches_reference(backend, rulebook, indices, SHAPE, geometry)


@st.composite
def problems(draw):
    triples = lambda low, high: st.tuples(*[st.integers(low, high)] * 3)  # noqa: E731
    shape, batch_size = draw(triples(1, 7)), draw(st.integers(1, 3))
    subm = draw(st.booleans())
    kernel, dilation = draw(triples(1, 4)), draw(triples(1, 2))
    stride = (1, 1, 1) if subm else draw(triples(1, 3))
    padding = None if subm else draw(triples(0, 3))
    geometry = ConvGeometry.make(kernel, stride, padding, dilation, subm=subm)
    spans = [n + 2 * p - d * (k - 1) for n, p, d, k in zip(shape, geometry.padding, dilation, kernel, strict=True)]
    assume(subm or min(spans) >= 1)
    cells = batch_size * int(np.prod(shape))
    count = draw(st.integers(0, cells))
    indices = random_sites(np.random.default_rng(draw(st.integers(0, 2**32))), shape, batch_size, count)
    if draw(st.booleans()):
        indices = np.unique(indices, axis=0).reshape(-1, 4)
    return indices, shape, batch_size, geometry


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problem=problems())
def test_any_geometry_matches_the_definition(backend, problem):
    indices, shape, batch_size, geometry = problem
    rulebook = built(backend, indices, shape, batch_size, geometry)
    assert_matches_reference(backend, rulebook, indices, shape, geometry)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problem=problems())
def test_invariants(backend, problem):
    indices, shape, batch_size, geometry = problem
    rulebook = built(backend, indices, shape, batch_size, geometry)
    out = backend.to_host(rulebook.out_indices)
    neighbours = backend.to_host(rulebook.neighbours)
    assert len(np.unique(out, axis=0)) == len(out)
    if not geometry.subm:
        assert (np.lexsort(out.T[::-1]) == np.arange(len(out))).all()
        assert (neighbours >= 0).any(axis=0).all(), "an output site that nothing reaches"
    for row in neighbours:
        used = row[row >= 0]
        assert len(np.unique(used)) == len(used), "one offset brings an input to two outputs"
    inverse = rulebook.inverse()
    assert inverse.in_indices is rulebook.out_indices
    assert inverse.out_indices is rulebook.in_indices
    assert (backend.to_host(inverse.inverse().neighbours) == neighbours).all()


@pytest.mark.parametrize("name", ["subm_k3", "k3_s2_p1", "k232_s123_d112"])
def test_a_grid_changes_nothing_and_comes_back_clean(backend, name):
    indices, geometry = SITES["random"](), GEOMETRIES[name]
    grid = backend.to_device(np.full(BATCH * np.prod(SHAPE) + 5, -1, dtype=np.int32))
    with_grid = built(backend, indices, SHAPE, BATCH, geometry, grid)
    without = built(backend, indices, SHAPE, BATCH, geometry)
    assert (backend.to_host(with_grid.neighbours) == backend.to_host(without.neighbours)).all()
    assert (backend.to_host(grid) == -1).all()


def test_a_grid_that_is_too_small_is_refused(backend):
    grid = backend.to_device(np.full(10, -1, dtype=np.int32))
    with pytest.raises(InputError, match="at least 756 elements"):
        built(backend, SITES["random"](), SHAPE, BATCH, GEOMETRIES["subm_k3"], grid)


def test_memory_does_not_follow_the_volume(backend):
    """A volume of 2**61 cells: nothing of that size could be allocated, and keys need all 64 bits."""
    shape = (2**20, 2**20, 2**20)
    corner = np.int32([[0, 0, 0, 0], [1, 2**20 - 1, 2**20 - 1, 2**20 - 1], [1, 2**20 - 1, 2**20 - 1, 2**20 - 2]])
    rulebook = built(backend, corner, shape, 2, ConvGeometry.make(3, subm=True))
    assert backend.to_host(rulebook.indice_num).tolist() == [0] * 12 + [1, 3, 1] + [0] * 12
    strided = built(backend, corner, shape, 2, ConvGeometry.make(3, 2, 1))
    assert backend.to_host(strided.out_indices).tolist() == [[0, 0, 0, 0], [1, 2**19 - 1, 2**19 - 1, 2**19 - 1]]


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (np.zeros((3, 3), np.int32), r"shape \(N, 4\)"),
        (np.zeros((3, 4), np.int64), "int32"),
        (np.int32([[0, 0, 0, 9]]), "outside"),
        (np.int32([[2, 0, 0, 0]]), "outside"),
        (np.int32([[0, -1, 0, 0]]), "outside"),
        (np.int32([[0, 1, 2, 3], [0, 0, 0, 0], [0, 1, 2, 3]]), "same site twice"),
    ],
)
def test_malformed_sites_are_refused(backend, indices, message):
    with pytest.raises(InputError, match=message):
        built(backend, indices, SHAPE, BATCH, GEOMETRIES["subm_k3"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel_size": 0}, "kernel_size must be"),
        ({"kernel_size": (3, 3)}, "kernel_size must be"),
        ({"stride": 0}, "stride must be"),
        ({"padding": -1}, "padding must be"),
        ({"dilation": 0}, "dilation must be"),
        ({"kernel_size": 8}, "does not fit"),
        ({"stride": 2, "subm": True}, "stride must be 1"),
        ({"padding": -1, "subm": True}, "padding must be"),
    ],
)
def test_geometries_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        build_rulebook(SITES["random"](), SHAPE, BATCH, **{"kernel_size": 3, **arguments})


def test_a_submanifold_kernel_is_centred_whatever_the_padding_says():
    made = [ConvGeometry.make(3, 1, padding, 2, subm=True) for padding in (None, 0, 1, (0, 1, 2))]
    assert {geometry.padding for geometry in made} == {(2, 2, 2)}


def test_a_volume_beyond_64_bits_is_refused():
    with pytest.raises(InputError, match=r"2\*\*62"):
        build_rulebook(np.zeros((1, 4), np.int32), (2**21, 2**21, 2**21), 1)
