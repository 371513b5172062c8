"""The CUDA backend's directed Hausdorff distance: the host launches rounds and now and then reads where they are."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from ..goal import Goal, Interval, Outcome, Status, unsearched
from ..mesh import PreparedMesh
from ..rounding import error_bound, round_down, round_up
from .kernels import (
    BOUND_OFFSET,
    GROUP,
    KERNEL_WAVEFRONT,
    PRECISION,
    SEARCH,
    STATE,
    TRIANGLE_BYTES,
    WORKLIST,
    Parameters,
    launch,
    launch_together,
)
from .mesh import SORT_BYTES, CudaMesh, cuda_mesh

# Of a position: the shift, and three roundings where corners are weighted by exact barycentric coordinates.
ROUNDINGS = 3
SPREAD = 32  # threads for each item, where the device has as many: see Share in search.cuh
CHUNK = 2**19  # faces looked at between two reports
SMALLEST, LARGEST = 2**10, 2**20  # triangles a worklist may hold
SPARE = 192  # triangles of a worklist kept free, for going down to the smallest triangle one by one
ROUNDS, MOST_ROUNDS = 12, 32  # between two reports
LONGEST = 0.02  # seconds between two reports to aim at, so that a cancelled search ends soon
# A worklist's triangle twice, the new points of a quarter of them, and what sorting their bounds takes
BYTES = 2 * TRIANGLE_BYTES + 9 + 36


class Wavefront:
    """One directed search, from every triangle of ``source`` to the nearest of ``target``."""

    def __init__(self, source: PreparedMesh, target: PreparedMesh, goal: Goal, floor: Interval, capacity: int) -> None:
        import cupy

        self.goal, self.floor = goal, floor
        self.origin = target.origin
        self.meshes = cuda_mesh(source), cuda_mesh(target)  # what the pointers below point into
        corners = np.stack([source.low, source.high, target.low, target.high]) - self.origin
        self.scale = scale = self.meshes[1].scale
        magnitude = float(np.abs(corners).max()) * scale
        error = error_bound(magnitude, ROUNDINGS)
        self.error = error / scale
        ignore = np.float32(min(max(goal.tolerance * scale / 16.0, error), 1e30))
        reserve = float(ignore) + 4.0 * error  # of a computed distance above the certified one

        self.faces, vertices = len(source.faces), len(source.vertices)
        self.capacity = capacity
        self.state = cupy.empty(STATE.itemsize, np.uint8)
        self.state.data.memset_async(0, self.state.nbytes)
        self.lists = [cupy.empty(TRIANGLE_BYTES * capacity, np.uint8) for _ in range(2)]
        self.vertex_row = cupy.empty(vertices, np.int32)
        self.vertex_row.data.memset_async(0xFF, self.vertex_row.nbytes)  # -1
        arrays = {
            "state": self.state,
            "group_row": cupy.empty(-(-self.faces // GROUP), np.int32),
            "roots": cupy.empty(self.faces, np.int32),
            "root_vertices": cupy.empty(vertices, np.int32),
            "vertex_distance": cupy.empty(vertices, np.float64),
            "vertex_row": self.vertex_row,
            "new_distance": cupy.empty(3 * (capacity // 4), np.float64),
            "new_row": cupy.empty(3 * (capacity // 4), np.int32),
        }
        self.arrays = arrays
        self.search = np.zeros((), SEARCH)
        self.search["target"], self.search["source"] = self.meshes[1].target(), self.meshes[0].source()
        self.search["lists"] = np.array([(memory.data.ptr, capacity) for memory in self.lists], WORKLIST)
        self.search["precision"] = np.array(
            (max(2.0**-43 * magnitude, 2.0**-70), 2.0**-23 * magnitude, ignore), PRECISION
        )
        self.search["cut"] = goal.cut(floor.lower, floor.upper, self.error) * scale
        self.search["slack"] = max(goal.tolerance * scale - reserve, 4.0 * error)
        self.search["threshold"] = np.inf if goal.threshold is None else goal.threshold * scale + reserve
        for name, array in arrays.items():
            self.search[name] = array.data.ptr
        self.parameters = Parameters(self.search, 0, 0)
        # Somebody who watches wants a report after each step; otherwise the first batch mostly is the whole search.
        self.watched = goal.progress is not None
        self.rounds = 1 if self.watched else ROUNDS
        self.sampled, self.screened, self.seeded = False, 0, 0
        self.best, self.witnessed = unsearched(source, target, floor), False

    def run(self) -> Outcome:
        """Batches of work until the goal is met or nothing is left to split."""
        report, best = None, self.best
        while True:
            started = time.perf_counter()
            possible = self.advance(report)
            report = self.report()
            self.note(report)
            surviving = self.surviving(report)
            status = self.goal.verdict(best.lower, best.upper)
            status = status or self.goal.interruption(best.lower, best.upper, surviving)
            if status is None and surviving == 0:
                status = Status.PRECISION_LIMIT
            if status is None and not possible:
                status = Status.MEMORY_LIMIT
            if status is not None:
                return replace(best, status=status)
            took = time.perf_counter() - started
            self.rounds = max(1, self.rounds // 2) if took > LONGEST else min(2 * self.rounds, MOST_ROUNDS)

    def launch(self, name: str, items: int, first: int = 0, last: int = 0) -> None:
        """Launch a kernel of the search; those that take no integers ignore them."""
        self.parameters.integers[0].value, self.parameters.integers[1].value = first, last
        launch(KERNEL_WAVEFRONT, name, items, self.parameters)

    def launch_rounds(self, most: int, count: int = 0) -> None:
        """Launch rounds until nothing is open, at most ``most``; with an order, one that splits ``count`` triangles."""
        self.parameters.integers[0].value, self.parameters.integers[1].value = most, count
        launch_together(KERNEL_WAVEFRONT, "rounds", self.parameters)

    def advance(self, report: Any) -> bool:
        """Enqueue a batch of work; False when memory leaves no room for any."""
        if not self.sampled:
            self.launch("sample", SPREAD * -(-self.faces // GROUP))
            self.sampled = True
            if self.watched:
                return True
        if self.screened < self.faces:
            first, self.screened = self.screened, min(self.screened + CHUNK, self.faces)
            self.launch("screen", self.screened - first, first, self.screened)
            known = 0 if report is None else int(report["vertices"])
            self.launch("measure_vertices", SPREAD * (len(self.vertex_row) - known), known)
            if self.watched or self.screened < self.faces:
                return True
        written = 0 if report is None else int(report["written"])
        if written == 0:
            first, self.seeded = self.seeded, self.seeded + self.capacity // 4
            self.launch("seed", self.capacity // 4, first, self.seeded)
            if self.watched:
                return True
        elif 4 * written > self.capacity:
            return self.defer(written, self.lists[int(report["list"]) ^ 1])
        elif report["paused"]:
            self.search["threshold"] = np.inf  # not proven after all
        self.launch_rounds(self.rounds)
        return True

    def defer(self, written: int, memory: Any) -> bool:
        """Split the triangles with the smallest bounds, which are the next to close, and defer all others.

        As many as can at worst fill half of the free memory, so that there is always room to go on (Fan et al., 2026).
        """
        import cupy

        room = self.capacity - written
        if room < 3:
            return False
        count = min(max(1, (room - SPARE) // 6), self.capacity // 4)
        start = BOUND_OFFSET * self.capacity
        try:
            order = cupy.argsort(memory[start : start + 8 * written].view(np.float64)).astype(np.int32)
        except cupy.cuda.memory.OutOfMemoryError:
            return False
        self.search["order"] = order.data.ptr
        self.launch_rounds(1, count)
        self.search["order"] = 0
        return True

    def report(self) -> Any:
        """Wait for the device; where the search stands."""
        self.launch("begin_report", 1)
        self.launch("certify_witness", self.meshes[1].count)
        return self.state.get().view(STATE)[0]

    def note(self, report: Any) -> None:
        """Narrow the interval, rounding outward; the witness stays with the lower bound that it proves."""
        best = self.best
        lower = round_down(float(report["certified"]) / self.scale, self.error)
        if lower > best.lower or not self.witnessed:
            best.lower, self.witnessed = max(best.lower, lower), True
            best.witness = report["farthest"]["point"] / self.scale + self.origin
            best.nearest = report["nearest"]["point"] / self.scale + self.origin
        bound = float(report["closed"])
        if report["written"] > 0:
            bound = max(bound, float(report["top"]))
        if self.screened < self.faces or self.seeded < report["roots"]:
            bound = max(bound, float(report["unseeded"]))
        upper = max(self.floor.upper, round_up(bound / self.scale, self.error))
        best.upper = max(best.lower, min(best.upper, upper))
        best.triangles = self.screened + int(report["triangles"])

    def surviving(self, report: Any) -> int:
        """Triangles still open."""
        waiting = max(0, int(report["roots"]) - self.seeded)
        return int(report["written"]) + waiting + self.faces - self.screened


def capacity_of(source: PreparedMesh, target: PreparedMesh, memory_limit: int | None) -> int:
    """Triangles that a worklist can hold within the limit, a multiple of eight."""
    capacity = min(max(-(-4 * len(source.faces) // 8) * 8, 2**16), LARGEST)
    if memory_limit is not None:
        faces, vertices = len(source.faces), len(source.vertices)
        meshes = CudaMesh.bytes(source, tree=False) + CudaMesh.bytes(target, tree=True)
        if meshes + SORT_BYTES * max(faces, len(target.faces)) > memory_limit:
            return 0
        arrays = 5 * faces + 16 * vertices + 2**14
        capacity = min(capacity, (memory_limit - meshes - arrays) // BYTES)
    return max(0, capacity // 8 * 8)


def directed(source: PreparedMesh, target: PreparedMesh, goal: Goal, floor: Interval) -> Outcome:
    """Certify ``max(floor, h(source, target))``."""
    import cupy

    start = unsearched(source, target, floor)
    status = goal.verdict(start.lower, start.upper) or goal.interruption(start.lower, start.upper, len(source.faces))
    if status is not None:
        return replace(start, status=status)
    capacity = capacity_of(source, target, goal.memory_limit)
    while capacity >= SMALLEST:
        try:
            wavefront = Wavefront(source, target, goal, floor, capacity)
        except cupy.cuda.memory.OutOfMemoryError:
            capacity = capacity // 16 * 8
        else:
            return wavefront.run()
    return replace(start, status=Status.MEMORY_LIMIT)
