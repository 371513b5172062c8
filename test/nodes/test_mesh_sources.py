"""Which meshes a request may name, and that a mesh is prepared once."""

import os

import numpy as np
import pytest
from geometry_msgs.msg import Point
from shape_msgs.msg import Mesh, MeshTriangle

from radius_fps_ros.errors import InputError
from radius_fps_ros.nodes.mesh_sources import MeshCache, MeshLimits, requested_mesh, resolve_uri

TRIANGLE = "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n"


@pytest.fixture
def folders(tmp_path):
    allowed, outside = tmp_path / "maps", tmp_path / "secret"
    for folder in (allowed, outside):
        folder.mkdir()
        (folder / "mesh.off").write_text(TRIANGLE)
    (allowed / "link.off").symlink_to(outside / "mesh.off")
    (allowed / "inside link.off").symlink_to(allowed / "mesh.off")
    (allowed / "round.off").symlink_to(allowed / "round.off")
    os.mkfifo(allowed / "pipe.off")
    return allowed, outside


def limits_of(*roots, **changes):
    return MeshLimits(**({"allowed_roots": roots, "max_file_bytes": 10_000, "max_triangles": 100} | changes))


def inline(vertices, faces):
    return Mesh(
        vertices=[Point(x=float(x), y=float(y), z=float(z)) for x, y, z in vertices],
        triangles=[MeshTriangle(vertex_indices=np.array(face, np.uint32)) for face in faces],
    )


SQUARE = inline([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)], [(0, 1, 2), (0, 2, 3)])


def test_files_inside_are_found(folders):
    allowed, _ = folders
    assert resolve_uri(f"file://{allowed}/mesh.off", [allowed]) == allowed / "mesh.off"
    assert resolve_uri(f"file://localhost{allowed}/mesh.off", [allowed]) == allowed / "mesh.off"
    assert resolve_uri(f"file://{allowed}/inside%20link.off", [allowed]) == allowed / "mesh.off"
    assert resolve_uri(f"file://{allowed}/../maps/mesh.off", [allowed]) == allowed / "mesh.off"


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("file://{outside}/mesh.off", "is outside the folders"),
        ("file://{allowed}/../secret/mesh.off", "is outside the folders"),
        ("file://{allowed}/%2e%2e/secret/mesh.off", "is outside the folders"),
        ("file://{allowed}/link.off", "is outside the folders"),
        ("file://{outside}/does_not_exist.off", "is outside the folders"),
        ("file://{allowed}2/mesh.off", "is outside the folders"),
        ("file:///etc/passwd", "is outside the folders"),
        ("file://{allowed}/missing.off", "does not exist or is not a regular file"),
        ("file://{allowed}", "is a folder, not a mesh file"),
        ("file://{allowed}/two\nlines.off", "does not exist or is not a regular file"),
        ("file://{outside}/two\nlines.off", "is outside the folders"),
        ("file://{allowed}/pipe.off", "does not exist or is not a regular file"),
        ("file://{allowed}/round.off", "cannot be resolved"),
        ("file://{allowed}/zero%00byte.off", "cannot be resolved"),
        ("file://host{allowed}/mesh.off", "is not a file:///path or package://name/path URI"),
        ("http://example.invalid/mesh.off", "is not a file:///path or package://name/path URI"),
        ("{allowed}/mesh.off", "is not a file:///path or package://name/path URI"),
        ("package://no_such_package/mesh.off", "there is no package 'no_such_package'"),
    ],
)
def test_everything_else_is_refused(folders, uri, words):
    allowed, outside = folders
    with pytest.raises(InputError, match=words) as error:
        resolve_uri(uri.format(allowed=allowed, outside=outside), [allowed])
    assert "\n" not in str(error.value)


def test_without_roots_nothing_is_read(folders):
    allowed, _ = folders
    with pytest.raises(InputError, match="is outside the folders that parameter allowed_roots names"):
        resolve_uri(f"file://{allowed}/mesh.off", [])


def test_both_or_neither_is_refused(folders):
    allowed, _ = folders
    limits, cache = limits_of(allowed), MeshCache(1000)
    with pytest.raises(InputError, match="mesh A is given both inline and by URI"):
        requested_mesh("A", SQUARE, f"file://{allowed}/mesh.off", limits, cache)
    with pytest.raises(InputError, match="mesh B is missing"):
        requested_mesh("B", Mesh(), "", limits, cache)


def test_limits(folders):
    allowed, _ = folders
    uri, cache = f"file://{allowed}/mesh.off", MeshCache(1000)
    with pytest.raises(InputError, match="the file has 36 bytes, more than the limit of 20"):
        requested_mesh("A", Mesh(), uri, limits_of(allowed, max_file_bytes=20), cache)
    with pytest.raises(InputError, match="mesh A has 2 triangles, more than the limit of 1"):
        requested_mesh("A", SQUARE, "", limits_of(max_triangles=1), cache)
    with pytest.raises(InputError, match="mesh A has 1 triangles, more than the limit of 0"):
        requested_mesh("A", Mesh(), uri, limits_of(allowed, max_triangles=0), cache)


def test_an_inline_mesh_arrives_whole_and_is_checked():
    mesh = requested_mesh("A", SQUARE, "", limits_of(), MeshCache(1000))
    np.testing.assert_array_equal(mesh.vertices, [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)])
    np.testing.assert_array_equal(mesh.faces, [(0, 1, 2), (0, 2, 3)])
    for broken, words in (
        (inline([(0, 0, 0)], [(0, 0, 4_000_000_000)]), "out of range"),
        (inline([(0, 0, 0), (np.nan, 0, 0)], [(0, 1, 1)]), "not finite"),
        (inline([(0, 0, 0)], []), "no faces"),
    ):
        with pytest.raises(InputError, match=words):
            requested_mesh("A", broken, "", limits_of(), MeshCache(1000))


def test_the_same_content_is_prepared_once(folders):
    allowed, _ = folders
    limits, cache = limits_of(allowed), MeshCache(max_triangles=3)
    by_uri = requested_mesh("A", Mesh(), f"file://{allowed}/mesh.off", limits, cache)
    assert requested_mesh("B", Mesh(), f"file://{allowed}/inside%20link.off", limits, cache) is by_uri
    square = requested_mesh("A", SQUARE, "", limits, cache)
    assert requested_mesh("B", SQUARE, "", limits, cache) is square
    (allowed / "mesh.off").write_text(TRIANGLE.replace("1 0 0", "2 0 0"))
    changed = requested_mesh("A", Mesh(), f"file://{allowed}/mesh.off", limits, cache)
    assert changed.vertices.max() == 2, "the content decides, not the name"
    assert requested_mesh("B", SQUARE, "", limits, cache) is square, "the oldest left"
    assert MeshCache(0).get(b"key", lambda: square) is square
