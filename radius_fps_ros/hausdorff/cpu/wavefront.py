"""Branch and bound over the triangles of A, a batch a round: the CPU backend's directed Hausdorff distance.

Rounds as in Fan et al. (2026): bound all open triangles, close those at or below the cut, split the rest in four.
Most triangles are closed before that by one triangle of B that lies within the cut of all three corners.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..goal import Goal, Interval, Outcome, Status, unsearched
from ..mesh import PreparedMesh
from ..rounding import error_bound, round_down, round_up
from . import seeds
from .certified import certified_distance
from .geometry import closest_on_triangle
from .kernel import NOTHING, ROW_OF_FARTHEST
from .memory import available_bytes, fixed_bytes
from .prepared import moved_to
from .subdivision import MAX_DEPTH, expand
from .watch import Watch
from .workers import Interrupted, Workers

FIRST_BATCH = 32  # groups of seeds in the first round; four times as many in each further one
LARGEST_BATCH = 512
BLOCK = 8192  # triangles subdivided in a round, at most
TRANSIENT = 10  # blocks' worth of memory that splitting one takes for a moment


@dataclass
class Block:
    """Open triangles: corners ``(n, 9)``, their distances and nearest rows ``(n, 3)``, bounds, halvings so far."""

    corners: NDArray[np.float64]
    distance: NDArray[np.float64]
    row: NDArray[np.int32]
    bound: NDArray[np.float64]
    depth: NDArray[np.uint8]

    @property
    def top(self) -> float:
        """Largest bound."""
        return float(self.bound.max())

    @staticmethod
    def empty(n: int) -> Block:
        """Room for ``n`` triangles."""
        return Block(np.empty((n, 9)), np.empty((n, 3)), np.empty((n, 3), np.int32), np.empty(n), np.empty(n, np.uint8))

    def arrays(self) -> tuple[NDArray, ...]:
        """In the order the kernels take them."""
        return self.corners, self.distance, self.row, self.bound, self.depth

    def take(self, spans: list[tuple[int, int]]) -> Block:
        """A copy of the given ranges."""
        return Block(*(np.concatenate([a[i:j] for i, j in spans]) for a in self.arrays()))

    def pick(self, index: NDArray[np.int64]) -> Block:
        """The triangles of the given indices."""
        return Block(*(a[index] for a in self.arrays()))

    @staticmethod
    def join(a: Block, b: Block) -> Block:
        """Both blocks' triangles."""
        return Block(*(np.concatenate(pair) for pair in zip(a.arrays(), b.arrays(), strict=True)))

    def __len__(self) -> int:
        return len(self.bound)


TRIANGLE_BYTES = sum(a.nbytes for a in Block.empty(1).arrays())


class Wavefront:
    """One directed search, from every triangle of ``source`` to the nearest of ``target``."""

    def __init__(
        self, source: PreparedMesh, target: PreparedMesh, goal: Goal, floor: Interval, workers: Workers
    ) -> None:
        self.goal, self.floor, self.workers = goal, floor, workers
        self.source, self.target, self.faces, self.origin = source, target, source.faces, target.origin
        corners = np.concatenate([source.low, source.high, target.low, target.high]).reshape(4, 3) - self.origin
        self.magnitude = float(np.abs(corners).max())
        self.error = error_bound(self.magnitude, MAX_DEPTH + 4)
        self.enough = (2.0**-50 * self.magnitude) ** 2

        self.lower, self.witness, self.nearest = floor.lower, np.full(3, np.nan), -1
        self.farthest = -1.0  # computed distance of the best candidate for the witness
        self.closed = 0.0  # largest computed bound of a closed triangle
        self.start, self.open = unsearched(source, target, floor), len(source.faces)
        self.least = self.start.upper  # least upper bound so far: a later one may be wider
        self.depth, self.triangles = 0, 0
        self.blocks: deque[Block] = deque()
        memory = available_bytes() // 2 if goal.memory_limit is None else goal.memory_limit
        spare = max(0, memory - fixed_bytes(source, target)) // TRIANGLE_BYTES
        self.block = min(BLOCK, max(seeds.GROUP, spare // (2 * TRANSIENT)))
        self.capacity = spare - TRANSIENT * self.block
        self.watch = Watch(goal, workers, lambda: (self.lower, max(self.least, self.lower), self.open))

    def run(self) -> Outcome:
        """Rounds until the goal is met, nothing is left to split, or a limit or the caller ends the search."""
        with self.watch:
            try:
                self.build()
                return self.rounds()
            except Interrupted:
                # The round in work is lost; the bounds from before it stand, and a higher lower bound that it found.
                if self.watch.failure is not None:
                    raise self.watch.failure from None
                assert self.watch.status is not None
                return self.outcome(self.watch.status, max(self.least, self.lower))

    def build(self) -> None:
        """The structures of the meshes, where they are not there yet, and room for what is known of A's vertices."""
        workers = self.workers
        (self.order, self.groups), self.bvh = workers.map(
            lambda build: build(workers), [(self.source.cpu().order,), (self.target.cpu().bvh,)]
        )
        self.tree = self.bvh.nodes, self.bvh.links, self.bvh.rows
        self.vertices = moved_to(self.origin, self.source.vertices, workers)
        self.vertex_distance = np.empty(len(self.vertices))
        self.vertex_row = np.full(len(self.vertices), -1, np.int32)
        n = len(self.groups)
        self.group_distance, self.group_row = np.empty(n), np.empty(n, np.int32)
        self.group_bound = np.empty(n)
        self.rank = np.arange(n)  # groups in the order of their bounds, highest first
        self.position, self.batch = 0, FIRST_BATCH

    def rounds(self) -> Outcome:
        """What `run` repeats."""
        self.sample()
        while True:
            lower, upper, self.open = self.lower, self.upper(), self.surviving()
            status = self.goal.verdict(lower, upper) or self.watch.look()
            if status is None and self.open == 0:
                status = Status.PRECISION_LIMIT
            if status is None and not self.advance():
                status = Status.MEMORY_LIMIT
            if status is not None:
                return self.outcome(status, upper)

    def advance(self) -> bool:
        """One round; False when memory leaves no room for another.

        Breadth first while there is room. When it runs short, the triangles with the smallest bounds, which are the
        next to close, are split and all others deferred (Fan et al., 2026); a small part of the room at a time, so
        that their descendants find room too.
        """
        room = self.capacity - sum(len(block) for block in self.blocks)
        groups = min(self.batch, self.block // 16, room // (2 * seeds.GROUP))
        if self.position < len(self.rank) and groups > 0:
            self.seed(groups)
            return True
        if not self.blocks or room < 3:
            return False
        if room >= 8 * self.block:
            block = self.blocks.popleft()
            while self.blocks and len(block) + len(self.blocks[0]) <= self.block:
                block = Block.join(block, self.blocks.popleft())
            self.split(block)
            return True
        self.blocks.rotate(-min(range(len(self.blocks)), key=lambda i: self.blocks[i].top))
        block = self.blocks.popleft()
        some = min(max(1, room // 8), len(block))
        order = np.argpartition(block.bound, some - 1)
        if some < len(block):
            self.push(block.pick(order[some:]))
        self.split(block.pick(order[:some]))
        return True

    def cut(self) -> float:
        """Computed bounds up to this close a triangle."""
        return self.goal.cut(self.lower, self.floor.upper, self.error)

    def upper(self) -> float:
        """Upper bound of the distance as it stands, rounded up."""
        bound = max((block.top for block in self.blocks), default=0.0)
        if self.position < len(self.rank):
            bound = max(bound, self.group_bound[self.rank[self.position]])
        bound = max(self.closed, float(bound))
        bound = round_up(bound, self.rounding())
        self.least = min(self.least, max(self.floor.upper, self.lower, bound))
        return self.least

    def rounding(self) -> float:
        """What rounding can do to a distance so far: children are two halvings deeper than the open triangles."""
        return error_bound(self.magnitude, self.depth + 2)

    def surviving(self) -> int:
        """Triangles still open."""
        waiting = (len(self.rank) - self.position) * seeds.GROUP
        return min(waiting, len(self.faces)) + sum(len(block) for block in self.blocks)

    def run_jobs(self, kernel: Callable[..., Any], n: int, smallest: int, width: int = 1) -> list[tuple[int, int]]:
        """``kernel(first, last, start, report)`` over ranges of ``0..n``; the spans of what each wrote.

        ``start`` is where a range's output begins: ``width`` entries for each input.
        """
        ranges = self.workers.ranges(n, smallest)
        reports = np.tile(NOTHING, (len(ranges), 1))
        jobs = [(i, j, i * width, report) for (i, j), report in zip(ranges, reports, strict=True)]
        ends = self.workers.map(kernel, jobs)
        for _, _, _, report in jobs:
            self.closed = max(self.closed, report[4])
            self.triangles += int(report[5])
        self.raise_lower(max((report for *_, report in jobs), key=lambda report: report[0]))
        return [(start, end) for (_, _, start, _), end in zip(jobs, ends, strict=True)]

    def raise_lower(self, candidate: NDArray[np.float64]) -> None:
        """Let the farthest point of a report become the witness if its certified distance is the largest."""
        if candidate[0] <= self.farthest:
            return
        self.farthest = candidate[0]
        nodes, links, _ = self.tree
        distance = certified_distance(
            nodes, links, self.bvh.face, self.bvh.vertices, self.target.faces, *candidate[1:4], self.workers.stop
        )
        self.workers.check()
        lower = round_down(distance, self.rounding())
        if lower > self.lower or np.isnan(self.witness[0]):
            self.lower, self.witness = max(self.lower, lower), candidate[1:4].copy()
            self.nearest = int(candidate[ROW_OF_FARTHEST])

    def sample(self) -> None:
        """One distance per group: a first lower bound, and an upper bound for each group."""

        def kernel(first: int, last: int, start: int, report: NDArray[np.float64]) -> int:
            seeds.sample_groups(
                *self.tree, self.vertices, self.faces, self.order, self.groups, self.origin,
                self.group_distance, self.group_row, self.group_bound, first, last, self.enough,
                self.workers.stop, report,
            )  # fmt: skip
            return start

        self.run_jobs(kernel, len(self.groups), 128)
        self.rank = np.argsort(-self.group_bound)

    def seed(self, batch: int) -> None:
        """Bound the triangles of the next groups; those above the cut become a block."""
        cut = self.cut()
        selected = self.rank[self.position : self.position + batch]
        top = float(self.group_bound[selected[0]])
        selected = np.sort(selected)  # along the curve again: neighbours share rows and cache lines
        self.batch = min(4 * self.batch, LARGEST_BATCH)
        if top <= cut:  # all further groups have lower bounds
            self.closed = max(self.closed, top)
            self.position = len(self.rank)
            return
        self.position += len(selected)
        self.triangles += int(np.minimum(seeds.GROUP, len(self.faces) - selected * seeds.GROUP).sum())
        face, hint = np.empty(len(selected) * seeds.GROUP, np.int32), np.empty(len(selected) * seeds.GROUP, np.int32)

        def screen(first: int, last: int, start: int, report: NDArray[np.float64]) -> int:
            return int(seeds.screen(
                *self.tree, self.vertices, self.faces, self.order, selected, self.group_row, first, last, cut,
                face, hint, start, self.workers.stop, report,
            ))  # fmt: skip

        spans = self.run_jobs(screen, len(selected), 8, seeds.GROUP)
        face = np.concatenate([face[i:j] for i, j in spans])
        hint = np.concatenate([hint[i:j] for i, j in spans])
        if len(face) == 0:
            return
        vertex, start_row = np.empty(3 * len(face), np.int32), np.empty(3 * len(face), np.int32)
        n = seeds.list_vertices(self.faces, face, hint, self.vertex_row, vertex, start_row)

        def query(first: int, last: int, start: int, report: NDArray[np.float64]) -> int:
            seeds.query_vertices(
                *self.tree, self.vertices, vertex, start_row, self.vertex_distance, self.vertex_row, first, last,
                self.enough, self.workers.stop, report,
            )  # fmt: skip
            return start

        self.run_jobs(query, n, 128)
        cut = self.cut()
        out = Block.empty(len(face))

        def classify(first: int, last: int, start: int, report: NDArray[np.float64]) -> int:
            return int(seeds.classify(
                self.tree[2], self.vertices, self.faces, face, self.vertex_distance, self.vertex_row, first, last,
                *out.arrays(), start, cut, report,
            ))  # fmt: skip

        self.push(out.take(self.run_jobs(classify, len(face), 128)))

    def split(self, block: Block) -> None:
        """Subdivide a block; the children above the cut become a block."""
        cut = self.cut()
        out = Block.empty(4 * len(block))

        def kernel(first: int, last: int, start: int, report: NDArray[np.float64]) -> int:
            return int(expand(
                *self.tree, *block.arrays(), first, last, *out.arrays(), start,
                cut, self.enough, self.workers.stop, report,
            ))  # fmt: skip

        self.push(out.take(self.run_jobs(kernel, len(block), 32, 4)))

    def push(self, block: Block) -> None:
        """Keep a block of open triangles."""
        for i in range(0, len(block), self.block):
            part = block.take([(i, min(i + self.block, len(block)))])
            self.depth = max(self.depth, int(part.depth.max()))
            self.blocks.append(part)

    def outcome(self, status: Status, upper: float) -> Outcome:
        """The result in world coordinates."""
        if np.isnan(self.witness[0]):  # before the first distance
            return replace(self.start, status=status)
        s, t, _ = closest_on_triangle(self.bvh.rows, self.nearest, *self.witness)
        b = self.bvh.rows[self.nearest]
        return Outcome(
            self.lower, upper, status, self.witness + self.origin, b[:3] + s * b[3:6] + t * b[6:9] + self.origin,
            self.triangles,
        )  # fmt: skip


def directed(source: PreparedMesh, target: PreparedMesh, goal: Goal, floor: Interval) -> Outcome:
    """Certify ``max(floor, h(source, target))``."""
    start = unsearched(source, target, floor)
    status = goal.verdict(start.lower, start.upper) or goal.interruption(start.lower, start.upper, len(source.faces))
    if status is None and goal.memory_limit is not None and fixed_bytes(source, target) > goal.memory_limit:
        status = Status.MEMORY_LIMIT
    if status is not None:
        return replace(start, status=status)
    with Workers() as workers:
        return Wavefront(source, target, goal, floor, workers).run()
