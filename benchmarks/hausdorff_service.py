"""Round trip of the certification service between processes: meshes inline, by URI, and by URI once prepared.

    python benchmarks/hausdorff_service.py

Two concentric bumpy spheres of about 70,000 and 35,000 triangles, the certificate at 1e-6 of A's diagonal.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import click
import numpy as np
import rclpy
import trimesh
from geometry_msgs.msg import Point
from machine import write_results
from radius_fps_interfaces.srv import CertifyHausdorff
from rclpy.executors import SingleThreadedExecutor
from shape_msgs.msg import Mesh, MeshTriangle

from radius_fps_ros.nodes.processes import NodeProcess, use_large_cloud_transport


def bumpy_sphere(rings: int, seed: int) -> trimesh.Trimesh:
    mesh = trimesh.creation.uv_sphere(radius=1.0, count=(rings, rings))
    bumps = 1 + 0.05 * np.sin(7 * mesh.vertices[:, :1]) * np.cos(5 * mesh.vertices[:, 1:2])
    noise = 1 + 1e-3 * np.random.default_rng(seed).random((len(mesh.vertices), 1))
    return trimesh.Trimesh(mesh.vertices * bumps * noise, mesh.faces, process=False)


def message_of(mesh: trimesh.Trimesh) -> Mesh:
    return Mesh(
        vertices=[Point(x=x, y=y, z=z) for x, y, z in mesh.vertices.tolist()],
        triangles=[MeshTriangle(vertex_indices=face) for face in mesh.faces.astype(np.uint32)],
    )


@click.command()
@click.option("--runs", default=7, show_default=True, type=click.IntRange(1))
@click.option("--rings", default=132, show_default=True, type=click.IntRange(8), help="Of sphere A; B has fewer.")
def main(runs: int, rings: int) -> None:
    """Print and write the milliseconds from the call to the answer."""
    use_large_cloud_transport()
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    rclpy.init()
    ros = rclpy.create_node("asker")
    executor = SingleThreadedExecutor()
    executor.add_node(ros)
    spinner = threading.Thread(target=executor.spin, daemon=True)
    spinner.start()
    meshes = {"a": bumpy_sphere(rings, 0), "b": bumpy_sphere(round(rings / 2**0.5), 1)}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, mesh in meshes.items():
            mesh.export(Path(folder) / f"{name}.ply")
        inline = {f"mesh_{name}": message_of(mesh) for name, mesh in meshes.items()}
        uris = {f"uri_{name}": f"file://{folder}/{name}.ply" for name in meshes}
        for what, members, cache in (
            ("inline, not kept", inline, 0),
            ("inline, kept", inline, 4_000_000),
            ("by URI, not kept", uris, 0),
            ("by URI, kept", uris, 4_000_000),
        ):
            parameters = {"allowed_roots": [folder], "cache_triangles": cache}
            with NodeProcess("hausdorff_node", namespace="/bench", parameters=parameters) as node:
                client = ros.create_client(CertifyHausdorff, "/bench/radius_fps_hausdorff/certify")
                if not client.wait_for_service(timeout_sec=120):
                    raise SystemExit("the service did not appear")
                times, inner = [], []
                for _ in range(runs + 1):
                    begin = time.perf_counter()
                    answer = client.call(CertifyHausdorff.Request(**members))
                    times.append((time.perf_counter() - begin) * 1e3)
                    inner.append(answer.milliseconds)
                    if answer.status != answer.CONVERGED:
                        raise SystemExit(answer.message)
                ros.destroy_client(client)
                node.stop()
            row = {
                "what": what,
                "triangles": [len(mesh.faces) for mesh in meshes.values()],
                "round_trip_ms": round(statistics.median(times[1:]), 1),
                "first_round_trip_ms": round(times[0], 1),
                "certification_ms": round(statistics.median(inner[1:]), 1),
                "runs": runs,
                "backend": answer.backend,
            }
            rows.append(row)
            print(
                f"{what:18s} round trip {row['round_trip_ms']:8.1f} ms (first {row['first_round_trip_ms']:.1f}), "
                f"of it certification {row['certification_ms']:.1f}"
            )
    print(f"written to {write_results('hausdorff_service', rows)}")
    executor.shutdown(timeout_sec=1.0)
    spinner.join(1.0)
    ros.destroy_node()
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
