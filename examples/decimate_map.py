"""Find the strongest decimation of a map that provably stays within 5 cm of it, in both directions.

python examples/decimate_map.py map.ply decimated.ply --within 0.05

Needs `pip install 'fast-simplification>=0.2,<0.3'`, which decimates by quadric error. Vertices of an open border are
kept: maps have one, and a corner that is cut off is far away.
"""

import argparse
import math
from pathlib import Path

import trimesh
from fast_simplification import simplify

from radius_fps_ros.hausdorff import Status, certify_hausdorff, load_mesh, prepare_mesh
from radius_fps_ros.hausdorff.rounding import printed_interval

CLOSE_ENOUGH = 1.02  # the search ends when the counts of triangles it lies between differ by no more than this factor


def within_proven(original, other, within):
    """Whether both directed distances are proven to be at most ``within``."""
    answer = certify_hausdorff(original, other, symmetric=True, threshold=within)
    print(f"{answer.status}: distance in {printed_interval(answer.lower, answer.upper, 4)} m")
    return answer.status is Status.PROVEN_BELOW


def strongest_decimation(mesh, within):
    """Bisect the count of triangles; every mesh that is accepted carries a proof, whatever the course of the search."""
    original = prepare_mesh(mesh)  # checked and indexed once
    accepted, too_few = mesh, 3
    while len(accepted[1]) > max(too_few + 1, CLOSE_ENOUGH * too_few):
        wanted = max(too_few + 1, math.isqrt(too_few * len(accepted[1])))
        candidate = simplify(*mesh, target_count=wanted, preserve_border=True)
        print(f"{len(candidate[1]):,} triangles, ", end="")
        if within_proven(original, candidate, within) and len(candidate[1]) < len(accepted[1]):
            accepted = candidate
        else:
            too_few = wanted
    return accepted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("map", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--within", type=float, default=0.05, help="metres (default: 0.05)")
    arguments = parser.parse_args()
    mesh = load_mesh(arguments.map)
    decimated = strongest_decimation(mesh, arguments.within)
    trimesh.Trimesh(*decimated, process=False).export(arguments.output)
    print(f"{len(mesh[1]):,} to {len(decimated[1]):,} triangles: {arguments.output}, ", end="")
    # Most formats round coordinates, so the proof that counts is that of the file.
    if not within_proven(arguments.map, arguments.output, arguments.within):
        raise SystemExit("the rounding of the file's coordinates goes beyond the limit; choose another format")


if __name__ == "__main__":
    main()
