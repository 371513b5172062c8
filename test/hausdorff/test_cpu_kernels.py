"""The CPU backend's parts, held against exact arithmetic and their own definitions."""

import math

import numpy as np
import pytest

from radius_fps_ros.hausdorff import prepare_mesh
from radius_fps_ros.hausdorff.cpu import bounds, bvh, certified, geometry, queries, seeds, subdivision
from radius_fps_ros.hausdorff.cpu.workers import Workers
from radius_fps_ros.hausdorff.rounding import error_bound

from . import shapes
from .exact import distance2_to_triangle, rational

GO_ON = np.zeros(1, np.int64)  # the flag of workers that nobody stops


def root(fraction):
    """Square root of a rational to about 1e-17, also where the value is tiny."""
    return math.sqrt(fraction) if fraction > 1e-300 else float(fraction) ** 0.5


def awkward_triangles(rng, n):
    """Corners ``(n, 3, 3)`` up to 1 in size: needles, caps and nearly folded ones down to 1e-16 thin, segments."""
    a, b = rng.uniform(-1, 1, size=(2, n, 3))
    along = rng.choice([0.0, 1.0, 0.5, 1e-3, 0.3], size=(n, 1))
    thin = 10.0 ** rng.uniform(-17, 0, size=(n, 1)) * rng.integers(0, 2, size=(n, 1))
    c = np.clip(a + along * (b - a) + thin * rng.normal(size=(n, 3)), -1, 1)
    corners = np.stack([a, b, c], axis=1)
    return np.take_along_axis(corners, np.argsort(rng.random((n, 3)), axis=1)[:, :, None], axis=1)


def near_points(rng, corners):
    """For each triangle, a point over it, beside it, at a corner or far, at heights from 0 to 1."""
    w = rng.dirichlet((0.5, 0.5, 0.5), size=len(corners))
    w[::3] += 0.3 * rng.normal(size=w[::3].shape)
    height = 10.0 ** rng.uniform(-16, 0, size=(len(corners), 1)) * rng.integers(0, 2, size=(len(corners), 1))
    return np.clip((w[:, :, None] * corners).sum(axis=1) + height * rng.normal(size=(len(corners), 3)), -1, 1)


def test_distances_to_awkward_triangles():
    rng = np.random.default_rng(11)
    corners = awkward_triangles(rng, 1500)
    points = near_points(rng, corners)
    error = error_bound(1.0, 0)
    rows = np.empty((1, geometry.ROW))
    for corner, point in zip(corners, points, strict=True):
        exact = root(distance2_to_triangle(rational(point), *map(rational, corner)))
        geometry.fill_row(rows, 0, corner, 0, 1, 2)
        s, t, d2 = geometry.closest_on_triangle(rows, 0, *point)
        assert s >= 0
        assert t >= 0
        assert s + t <= 1 + 2**-52
        # an upper bound always; and close to the distance, however thin the triangle
        assert exact - error <= math.sqrt(d2) <= exact + 1e-12
        assert exact - error <= math.sqrt(geometry.triangle_distance2(rows, 0, *point)) <= exact + 1e-12
        below = certified.triangle_distance_below(corner - point)
        assert exact - 1e-12 <= below <= exact + error


def test_bounds_cover_the_triangle():
    rng = np.random.default_rng(4)
    grid = np.array([(i / 6, j / 6, 1 - (i + j) / 6) for i in range(7) for j in range(7 - i)])
    tightest = np.zeros(4)
    for _ in range(400):
        target = prepare_mesh(shapes.random_soup(rng, 6, bits=4))
        with Workers(1) as workers:
            tree = bvh.build_bvh(target.vertices, target.faces, workers)
        corners = (
            awkward_triangles(rng, 1) if rng.random() < 0.5 else rng.uniform(-1, 1, (1, 3, 3)) * rng.choice([1, 0.1])
        ).reshape(1, 9)
        stack, near = np.empty(bvh.STACK, np.int64), np.empty(bvh.STACK)

        def nearest(p, tree=tree, stack=stack, near=near):
            return queries.nearest(tree.nodes, tree.links, tree.rows, *p, np.inf, -1, 0.0, GO_ON, stack, near)

        found = [nearest(p) for p in corners.reshape(3, 3)]
        distance = np.array([[math.sqrt(d) for d, _ in found]])
        row = np.array([[k for _, k in found]], np.int32)
        farthest = max(math.sqrt(nearest(p)[0]) for p in grid @ corners.reshape(3, 3))
        covering = bounds.covering_bound(corners, distance, 0)
        split = math.sqrt(bounds.split_bound(tree.rows, corners, distance, row, 0, np.inf))
        single = min(math.sqrt(geometry.corners_distance2(tree.rows, k, corners, 0, np.inf)) for k in range(6))
        for i, bound in enumerate((covering, split, single)):
            assert bound >= farthest - 1e-14
            tightest[i] += bound <= farthest + 1e-9
        d2, k = queries.within(tree.nodes, tree.links, tree.rows, corners, 0, single * (1 + 1e-12), GO_ON, stack)
        assert k >= 0
        assert math.sqrt(d2) <= single * (1 + 1e-12)
        if single > 1e-9:
            _, k = queries.within(tree.nodes, tree.links, tree.rows, corners, 0, single * (1 - 1e-9), GO_ON, stack)
            assert k == -1
    # the bounds differ in when they are tight; each of these is, now and then
    assert (tightest[1:3] > 10).all()


@pytest.mark.parametrize("elongated", [False, True])
def test_four_children_cover_their_parent(elongated):
    rng = np.random.default_rng(8)
    for _ in range(200):
        corners = np.array([[0, 0, 0, 1, 0, 0, 0.5, 0.7, 0]]) + rng.uniform(-0.2, 0.2, (1, 9))
        if elongated:
            corners[0, 6:] = corners[0, :3] + rng.uniform(0, 1) * (corners[0, 3:6] - corners[0, :3]) + 1e-3
        points, parents, children = np.zeros((6, 3)), np.zeros((6, 2), np.int64), np.zeros((4, 3), np.int64)
        halvings = subdivision.subdivide(corners, 0, points, parents, children)
        assert halvings == 1 + elongated
        np.testing.assert_array_equal(points[:3].ravel(), corners[0])
        for p in range(3, 6):
            np.testing.assert_array_equal(points[p], 0.5 * (points[parents[p, 0]] + points[parents[p, 1]]))
            assert (parents[p] < p).all()

        def normal(t):
            return np.cross(t[1] - t[0], t[2] - t[0])

        whole, parts = normal(points[:3]), [normal(points[c]) for c in children]
        # the parts keep the parent's orientation, so areas that add up mean neither gap nor overlap
        np.testing.assert_allclose(sum(parts), whole, atol=1e-13)
        assert all(p @ whole > 0 for p in parts)


def clustered(n):
    """Faces ever closer to the origin: splitting by space alone would make a list of the tree."""
    v = np.concatenate([shapes.triangle((0, 0, 0), (1, 0, 0), (0, 1, 0))[0] * 0.5**i for i in range(n)])
    return v, np.arange(3 * n).reshape(n, 3)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "mesh",
    [
        shapes.sphere(1),
        shapes.points((1, 2, 3)),
        shapes.joined(*[shapes.tetrahedron()] * 100),
        clustered(1000),
        shapes.sphere(6),
        shapes.joined(clustered(1000), shapes.sphere(5), clustered(900)),
    ],
    ids=["octahedron", "point", "identical", "clustered", "sphere", "mixed"],
)
def test_hierarchy_holds_every_face_once(mesh, threads, monkeypatch):
    monkeypatch.setattr(bvh, "SERIAL", 64)
    prepared = prepare_mesh(mesh)
    with Workers(threads) as workers:
        tree = bvh.build_bvh(prepared.vertices, prepared.faces, workers)
    assert sorted(tree.face) == list(range(len(prepared.faces)))
    corners = prepared.vertices[prepared.faces[tree.face]]
    np.testing.assert_array_equal(tree.rows[:, :3], corners[:, 0])
    deepest, seen, todo = 0, 0, [(0, 0)]
    while todo:
        node, depth = todo.pop()
        deepest = max(deepest, depth)
        first, last = tree.links[node, bvh.FIRST], tree.links[node, bvh.LAST]
        low, high = tree.nodes[node, :3], tree.nodes[node, 3:6]
        if last < 0:
            for child in (first, first + 1):
                assert (tree.nodes[child, :3] >= low).all()
                assert (tree.nodes[child, 3:6] <= high).all()
                todo.append((child, depth + 1))
        else:
            assert 1 <= last - first <= bvh.LEAF
            seen += last - first
            assert (corners[first:last].min(axis=(0, 1)) == low).all()
            assert (corners[first:last].max(axis=(0, 1)) == high).all()
    assert seen == len(prepared.faces)
    assert deepest < bvh.STACK - 1


def test_space_order_is_a_permutation_along_the_curve():
    mesh = prepare_mesh(shapes.sphere(4))
    with Workers() as workers:
        order, groups = mesh.cpu().order(workers)
    assert sorted(order) == list(range(len(mesh.faces)))
    assert len(groups) == math.ceil(len(order) / seeds.GROUP)
    for g, box in enumerate(groups):
        corners = mesh.vertices[mesh.faces[order[g * seeds.GROUP : (g + 1) * seeds.GROUP]]]
        np.testing.assert_array_equal(box, [*corners.min(axis=(0, 1)), *corners.max(axis=(0, 1))])
    # neighbours on the curve are neighbours in space: far closer than in random order
    centres = mesh.vertices[mesh.faces[order]].mean(axis=1)
    steps = np.linalg.norm(np.diff(centres, axis=0), axis=1)
    assert steps.mean() < 0.2


def test_workers_share_out_calls_and_pass_errors_on():
    with Workers(3) as workers:
        assert workers.map(lambda x, y: x * y, [(i, 2) for i in range(50)]) == [2 * i for i in range(50)]
        nested = workers.map(
            lambda i: sum(workers.map(lambda j: i * j, [(j,) for j in range(5)])), [(i,) for i in range(9)]
        )
        assert nested == [10 * i for i in range(9)]
        for n in (0, 1, 7, 1000):
            ranges = workers.ranges(n, 10)
            assert [i for a, b in ranges for i in range(a, b)] == list(range(n))
        with pytest.raises(ZeroDivisionError):
            workers.map(lambda i: 1 // i, [(i,) for i in (3, 2, 1, 0)])
