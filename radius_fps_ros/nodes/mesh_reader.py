"""Large text meshes are read by a process of their own: their readers hold the interpreter's lock for long moments.

Meanwhile the node could neither answer a cancelled request nor end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..hausdorff import load_mesh
from ..hausdorff.mesh import check_mesh

LARGE = 4_000_000  # bytes; text up to there holds the lock for some 40 ms
HEAD = 4096  # bytes in which a binary mesh has a zero
REFUSED = 2  # exit code


def read_mesh(path: Path) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """What `radius_fps_ros.hausdorff.load_mesh` gives, vertices (V, 3) float64 and faces (F, 3) int32, or raises."""
    if not _is_large_text(path):
        return load_mesh(path)
    # Not in the terminal's process group: a Ctrl-C ends the node, and with it the reader.
    command = [sys.executable, "-m", __name__, os.fspath(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as reader:
        assert reader.stdout is not None
        answer = reader.stdout.read()
    if reader.returncode == REFUSED:
        raise InputError(answer.decode())
    if reader.returncode != 0:
        raise InputError(f"{path} cannot be read: the process that read it ended with {reader.returncode}")
    n_vertices = int(np.frombuffer(answer, np.int64, 1)[0])
    vertices = np.frombuffer(answer, np.float64, 3 * n_vertices, 8)
    faces = np.frombuffer(answer, np.int32, -1, 8 + vertices.nbytes)
    return check_mesh(vertices.reshape(-1, 3), faces.reshape(-1, 3), str(path))  # writable copies


def _is_large_text(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size > LARGE and b"\0" not in file.read(HEAD)
    except OSError:
        return False  # `load_mesh` has the sentence for it


def main() -> None:
    """Read the mesh that is named and write it to stdout, or the sentence why that cannot be; end when stdin closes."""
    threading.Thread(target=_end_with_the_node, daemon=True).start()
    out = sys.stdout.buffer
    try:
        vertices, faces = load_mesh(sys.argv[1])
    except InputError as error:
        out.write(str(error).encode())
        sys.exit(REFUSED)
    for part in (np.array(len(vertices), np.int64), vertices, faces):
        out.write(part.data)


def _end_with_the_node() -> None:
    os.read(sys.stdin.fileno(), 1)  # nobody writes
    os._exit(1)


if __name__ == "__main__":
    main()
