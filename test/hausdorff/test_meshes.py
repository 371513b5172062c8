"""Meshes in: every format, arrays, and each kind of bad input with its sentence."""

import numpy as np
import pytest
import trimesh

from radius_fps_ros.errors import InputError
from radius_fps_ros.hausdorff import certify_hausdorff, load_mesh, prepare_mesh

from . import shapes

MESH = shapes.sphere(2)


def exported(mesh):
    return trimesh.Trimesh(*mesh, process=False)


@pytest.mark.parametrize("suffix", [".ply", ".obj", ".stl", ".off", ".glb"])
def test_every_format_holds_the_same_surface(suffix, tmp_path):
    path = tmp_path / f"sphere{suffix}"
    exported(MESH).export(path)
    vertices, faces = load_mesh(path)
    assert vertices.dtype == np.float64
    assert faces.dtype == np.int32
    assert len(faces) == len(MESH[1])
    # files may hold float32 or eight decimals
    assert certify_hausdorff(path, MESH, symmetric=True).upper < 1e-6


def test_suffixes_in_capitals_and_ascii_files(tmp_path):
    for name, options in (("a.PLY", {"encoding": "ascii"}), ("a.stl", {"file_type": "stl_ascii"})):
        path = tmp_path / name
        options = {"file_type": path.suffix[1:].lower(), **options}
        exported(MESH).export(path, **options)
        assert len(load_mesh(path)[1]) == len(MESH[1])


@pytest.mark.parametrize("kind", ["a.obj", "a.off", "ascii.stl", "binary.stl", "ascii.ply", "binary.ply"])
def test_comments_and_names_in_another_encoding(kind, tmp_path):
    path, latin = tmp_path / kind, "Fl\u00e4che \u00dc".encode("latin-1")
    options = {"ascii.stl": {"file_type": "stl_ascii"}, "ascii.ply": {"encoding": "ascii"}}.get(kind, {})
    exported(MESH).export(path, **{"file_type": path.suffix[1:], **options})
    content = path.read_bytes()
    expected = load_mesh(path)
    if path.suffix == ".ply":
        content = content.replace(b"1.0\n", b"1.0\ncomment " + latin + b"\n", 1)
    elif kind == "binary.stl":
        content = latin + content[len(latin) :]
    elif kind == "ascii.stl":
        content = b"solid " + latin + content[content.index(b"\n") :]
    elif kind == "a.off":
        content = content.replace(b"\n", b"\n# " + latin + b"\n", 1)
    else:
        content = b"# " + latin + b"\no " + latin + b"\n" + content
    path.write_bytes(content)
    for read, meant in zip(load_mesh(path), expected, strict=True):
        np.testing.assert_array_equal(read, meant)


def test_a_file_name_that_is_not_text(tmp_path):
    for suffix in (".ply", ".obj", ".stl", ".off", ".glb"):
        exported(MESH).export(tmp_path / f"a{suffix}")
        assert len(load_mesh((tmp_path / f"a{suffix}").rename(tmp_path / f"a\udcff{suffix}"))[1]) == len(MESH[1])


def test_polygons_become_triangles(tmp_path):
    square = "v 0 0 0\nv 2 0 0\nv 2 1 0\nv 0 1 0\nv 1 3 0\n"
    (tmp_path / "quad.obj").write_text(square + "f 1 2 3 4\n")
    (tmp_path / "pentagon.obj").write_text(square + "f 1 2 3 5 4\n")
    (tmp_path / "quad.off").write_text("OFF\n4 1 0\n0 0 0\n2 0 0\n2 1 0\n0 1 0\n4 0 1 2 3\n")
    header = "ply\nformat ascii 1.0\nelement vertex 5\nproperty float x\nproperty float y\nproperty float z\n"
    header += "element face 1\nproperty list uchar int vertex_indices\nend_header\n"
    (tmp_path / "quad.ply").write_text(header + "0 0 0\n2 0 0\n2 1 0\n0 1 0\n1 3 0\n4 0 1 2 3\n")
    for name, triangles in (("quad.obj", 2), ("pentagon.obj", 3), ("quad.off", 2), ("quad.ply", 2)):
        vertices, faces = load_mesh(tmp_path / name)
        assert len(faces) == triangles, name
        corners = vertices[faces]
        area = 0.5 * np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
        assert area.sum() == pytest.approx(2 + (triangles == 3) * 2), name


def test_scenes_are_flattened_where_they_are_placed(tmp_path):
    scene = trimesh.Scene()
    for x in (0.0, 10.0):
        scene.add_geometry(
            exported(shapes.tetrahedron()), transform=trimesh.transformations.translation_matrix((x, 0, 0))
        )
    scene.export(tmp_path / "two.glb")
    vertices, faces = load_mesh(tmp_path / "two.glb")
    assert len(faces) == 8
    assert np.ptp(vertices[:, 0]) == pytest.approx(12)


def test_units_and_values_are_untouched(tmp_path):
    vertices = np.array([[500000.123456789, 4300000.987654321, 1e-9], [1000.5, 0, 0], [0, 1e6, 0]])
    exported((vertices, np.array([[0, 1, 2]]))).export(tmp_path / "far.off", digits=17)
    np.testing.assert_array_equal(load_mesh(tmp_path / "far.off")[0], vertices)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("missing.ply", None, "no such file"),
        ("mesh.txt", b"0 0 0\n", r"format .txt is not one of .ply, .obj, .stl, .off, .glb"),
        ("mesh", b"0 0 0\n", "without a suffix is not one of"),
        ("zero.ply", b"", "is empty \\(0 bytes\\)"),
        ("text.ply", b"this is not a mesh at all\n", "cannot be read as a .ply mesh"),
        ("text.off", b"this is not a mesh at all\n", "cannot be read as a .off mesh"),
        ("text.glb", b"this is not a mesh at all\n", "cannot be read as a .glb mesh"),
        ("text.stl", b"this is not a mesh at all\n", "cannot be read as a .stl mesh|holds no triangles"),
        ("text.obj", b"this is not a mesh at all\n", "cannot be read as a .obj mesh|holds no triangles"),
        ("noise.stl", bytes(range(256)) * 9, "cannot be read as a .stl mesh|holds no triangles"),
        ("points.obj", b"v 0 0 0\nv 1 0 0\n", "cannot be read as a .obj mesh|holds no triangles"),
        ("lines.obj", b"v 0 0 0\nv 1 0 0\nl 1 2\n", "cannot be read as a .obj mesh|holds no triangles"),
        ("index.off", b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 7\n", "vertex index 7 is out of range|cannot be read"),
        ("nan.off", b"OFF\n3 1 0\n0 0 0\nnan 0 0\n0 1 0\n3 0 1 2\n", "vertex 1 is not finite"),
    ],
)  # fmt: skip
def test_bad_files(name, content, sentence, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=sentence) as caught:
        certify_hausdorff(path, MESH)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_points_only_and_truncated_ply(tmp_path):
    trimesh.PointCloud(np.eye(3)).export(tmp_path / "points.ply")
    with pytest.raises(InputError, match="holds no triangles"):
        load_mesh(tmp_path / "points.ply")
    exported(MESH).export(tmp_path / "whole.ply")
    data = (tmp_path / "whole.ply").read_bytes()
    (tmp_path / "half.ply").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"half\.ply"):
        load_mesh(tmp_path / "half.ply")


def test_a_folder(tmp_path):
    (tmp_path / "folder.ply").mkdir()
    with pytest.raises(InputError, match=r"folder\.ply is not a file"):
        load_mesh(tmp_path / "folder.ply")


VERTICES, FACES = shapes.tetrahedron()


def changed(index, value):
    vertices = VERTICES.copy()
    vertices[index] = value
    return vertices


@pytest.mark.parametrize(
    ("mesh", "sentence"),
    [
        ((VERTICES, np.empty((0, 3), int)), "mesh A is empty: it has no faces"),
        ((VERTICES, []), "mesh A is empty: it has no faces"),
        ((np.empty((0, 3)), FACES), "mesh A is empty: it has no vertices"),
        ((changed((2, 1), np.nan), FACES), r"mesh A: vertex 2 is not finite \(NaN or infinite\)"),
        ((changed((3, 0), -np.inf), FACES), "vertex 3 is not finite"),
        ((VERTICES, FACES + 1), "vertex index 4 is out of range; faces may use 0 to 3"),
        ((VERTICES, FACES - 1), "vertex index -1 is out of range"),
        ((VERTICES[:, :2], FACES), r"vertices must have shape \(V, 3\), not \(4, 2\)"),
        ((VERTICES, np.array([[0, 1, 2, 3]])), r"faces must have shape \(F, 3\): three vertex indices a triangle"),
        ((VERTICES, FACES.astype(float)), "faces must hold integers, not float64"),
        ((VERTICES, [[0, 1], [2, 3, 1]]), "must be arrays of numbers"),
        ((["a", "b"], FACES), "must be arrays of numbers"),
        ((changed((0, 0), 1e200), FACES), r"coordinates must not exceed 1e\+100"),
        (42, r"mesh A must be a pair \(vertices, faces\) or a path, not int"),
        ((VERTICES,), r"mesh A must be a pair \(vertices, faces\) or a path, not tuple"),
    ],
)
def test_bad_arrays(mesh, sentence):
    with pytest.raises(InputError, match=sentence):
        certify_hausdorff(mesh, (VERTICES, FACES))


def test_errors_name_the_mesh():
    with pytest.raises(InputError, match="mesh B is empty"):
        certify_hausdorff(MESH, (VERTICES, np.empty((0, 3), int)))


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.uint64])
def test_face_types_and_layouts(dtype):
    plain = certify_hausdorff(MESH, (VERTICES, FACES))
    vertices = np.asfortranarray(MESH[0].astype(np.float32)).astype(np.float64, order="F")
    reading_only = MESH[1].astype(dtype)
    reading_only.setflags(write=False)
    other = certify_hausdorff((vertices, reading_only), (VERTICES.tolist(), FACES.tolist()))
    assert other.lower <= plain.upper + 1e-6
    assert other.upper >= plain.lower - 1e-6


@pytest.mark.parametrize("unused", [[], [[9, 9, 9]], [[0, -9, 0], [0, 0, 9]], [[-9, 0.5, 9], [0, 0, 0]]])
def test_the_box_holds_the_vertices_that_faces_use(unused):
    vertices = np.concatenate([np.reshape(unused, (-1, 3)), MESH[0]])
    mesh = prepare_mesh((vertices, MESH[1] + len(unused)))
    np.testing.assert_array_equal(mesh.low, MESH[0].min(axis=0))
    np.testing.assert_array_equal(mesh.high, MESH[0].max(axis=0))


def test_the_callers_arrays_are_left_alone():
    vertices, faces = MESH[0].copy(), MESH[1].astype(np.int32)
    kept = vertices.copy(), faces.copy()
    mesh = prepare_mesh((vertices, faces))
    certify_hausdorff(mesh, shapes.tetrahedron(), symmetric=True)
    np.testing.assert_array_equal(vertices, kept[0])
    np.testing.assert_array_equal(faces, kept[1])
