"""Small meshes with known distances, and transformations of meshes."""

import numpy as np


def triangle(*corners):
    return np.array(corners, float), np.array([[0, 1, 2]])


def points(*places):
    """Each point as a degenerate triangle."""
    n = len(places)
    return np.array(places, float), np.repeat(np.arange(n), 3).reshape(n, 3)


def segment(a, b):
    return np.array([a, b], float), np.array([[0, 1, 1]])


def rectangle(x0, y0, x1, y1, z=0.0):
    return np.array([[x0, y0, z], [x1, y0, z], [x1, y1, z], [x0, y1, z]], float), np.array([[0, 1, 2], [0, 2, 3]])


def tetrahedron(size=1.0):
    v = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], float) * size
    return v, np.array([[0, 1, 2], [0, 3, 1], [0, 2, 3], [1, 3, 2]])


def sphere(levels, radius=1.0):
    """An octahedron subdivided ``levels`` times, its vertices on the sphere."""
    v = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], float)
    f = np.array([[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4], [2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]])
    for _ in range(levels):
        v, f = subdivide((v, f))
        v /= np.linalg.norm(v, axis=1, keepdims=True)
    return v * radius, f


def subdivide(mesh):
    """Each face into four by its edge midpoints; the surface stays the same."""
    v, f = mesh
    edges = np.sort(np.stack([f[:, [0, 1]], f[:, [1, 2]], f[:, [2, 0]]], axis=1).reshape(-1, 2), axis=1)
    unique, index = np.unique(edges, axis=0, return_inverse=True)
    m = index.reshape(-1, 3) + len(v)
    a, b, c = f.T
    ab, bc, ca = m.T
    faces = np.concatenate([np.stack(t, axis=1) for t in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))])
    return np.concatenate([v, 0.5 * (v[unique[:, 0]] + v[unique[:, 1]])]), faces


def moved(mesh, offset=(0, 0, 0), rotation=None, scale=1.0):
    v = mesh[0] * scale
    return (v if rotation is None else v @ np.asarray(rotation).T) + np.asarray(offset, float), mesh[1]


def joined(*meshes):
    starts = np.cumsum([0, *(len(v) for v, _ in meshes)])
    return np.concatenate([v for v, _ in meshes]), np.concatenate(
        [f + s for (_, f), s in zip(meshes, starts, strict=False)]
    )


def random_rotation(rng):
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    return q * np.sign(np.diag(r))


def random_soup(rng, n, degenerate=0.3, bits=6):
    """Triangles with few-bit coordinates: shared planes, duplicates and exact ties are common; some are segments."""
    v = rng.integers(-(2**bits), 2**bits, size=(n + 4, 3)) / 2.0**bits
    f = rng.integers(0, len(v), size=(n, 3))
    flat = rng.random(n) < degenerate
    f[flat, 2] = f[flat, 1]
    return v, f


def sample_points(rng, mesh, n):
    """Points on the mesh, its vertices first."""
    v, f = mesh
    weights = rng.dirichlet((0.7, 0.7, 0.7), size=n)
    corners = v[f[rng.integers(0, len(f), n)]]
    return np.concatenate([v[np.unique(f)], (weights[:, :, None] * corners).sum(axis=1)])
