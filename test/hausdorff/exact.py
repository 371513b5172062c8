"""Reference distances: in rational arithmetic, which nothing blurs, and in float64 for many points."""

from fractions import Fraction

import numpy as np


def rational(point):
    return tuple(Fraction(float(x)) for x in point)


def _sub(a, b):
    return tuple(x - y for x, y in zip(a, b, strict=True))


def _dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def _cross(a, b):
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def distance2_to_segment(p, a, b):
    ab, ap = _sub(b, a), _sub(p, a)
    length2 = _dot(ab, ab)
    t = min(max(_dot(ap, ab) / length2, 0), 1) if length2 else Fraction(0)
    d = tuple(x - t * y for x, y in zip(ap, ab, strict=True))
    return _dot(d, d)


def distance2_to_triangle(p, a, b, c):
    """Squared distance, exactly; the triangle may be a segment or a point."""
    best = min(distance2_to_segment(p, a, b), distance2_to_segment(p, b, c), distance2_to_segment(p, c, a))
    n = _cross(_sub(b, a), _sub(c, a))
    n2 = _dot(n, n)
    if n2 and all(_dot(_cross(_sub(v, u), _sub(p, u)), n) >= 0 for u, v in ((a, b), (b, c), (c, a))):
        best = min(best, _dot(_sub(p, a), n) ** 2 / n2)
    return best


def distance2_to_mesh(point, mesh):
    vertices, faces = mesh
    corners = [rational(v) for v in vertices]
    return min(distance2_to_triangle(rational(point), *(corners[i] for i in face)) for face in np.asarray(faces))


def exceeds(value, squared):
    """``value > sqrt(squared)`` for ``value >= 0``."""
    return Fraction(float(value)) ** 2 > squared


def distances_to_mesh(points, mesh):
    """Float64 distances of ``points (n, 3)``: the nearest of all edges, and of the planes of faces they lie over."""
    a, b, c = (mesh[0][mesh[1][:, i]] for i in range(3))
    p = points[:, None]
    best = np.full((len(points), len(mesh[1])), np.inf)
    normal = np.cross(b - a, c - a)
    over = np.ones(best.shape, bool)
    for u, v in ((a, b), (b, c), (c, a)):
        edge, w = v - u, p - u
        t = np.clip((w * edge).sum(-1) / np.maximum((edge**2).sum(-1), 1e-300), 0, 1)
        best = np.minimum(best, np.linalg.norm(w - t[..., None] * edge, axis=-1))
        over &= (np.cross(edge[None], w) * normal).sum(-1) >= 0
    size = np.linalg.norm(normal, axis=-1)
    height = np.abs(((p - a) * normal).sum(-1)) / np.maximum(size, 1e-300)
    return np.where(over & (size > 0), np.minimum(best, height), best).min(axis=1)
