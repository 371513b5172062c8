"""The parameters of the Hausdorff node, in one table."""

from __future__ import annotations

from ..device.backend import BACKENDS
from .parameters import ParameterSpec

SPECS = (
    ParameterSpec(
        "allowed_roots", [], "Folders from which meshes may be read by URI; empty: none.", item=str, read_only=True
    ),
    ParameterSpec("max_file_mb", 1024.0, "Largest mesh file [MB].", low=0.0, high=1e6),
    ParameterSpec("max_triangles", 10_000_000, "Largest mesh [triangles].", low=1, high=2_000_000_000),
    ParameterSpec(
        "cache_triangles",
        4_000_000,
        "Prepared meshes kept between requests, in triangles; 0: none.",
        low=0,
        high=2_000_000_000,
        read_only=True,
    ),
    ParameterSpec(
        "tolerance", 1e-6, "Tolerance of a request that names none, relative to A's diagonal.", low=1e-12, high=1.0
    ),
    ParameterSpec(
        "time_limit", 60.0, "Longest time of a request [s]; one that asks for more is cut to it.", low=0.001, high=1e6
    ),
    ParameterSpec("memory_limit_mb", 2048.0, "Memory a request may take for its work [MB].", low=1.0, high=1e6),
    ParameterSpec("max_running", 2, "Requests that run at once.", low=1, high=64, read_only=True),
    ParameterSpec(
        "max_waiting", 14, "Requests that may wait; one more is answered BUSY.", low=0, high=1024, read_only=True
    ),
    ParameterSpec("backend", "auto", "Where certification runs.", choices=BACKENDS, read_only=True),
)
