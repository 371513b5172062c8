"""The pass of a network over given tensors, captured as a CUDA graph and replayed for every frame."""

from __future__ import annotations

from typing import Any

import numpy as np

from .kernels import KERNEL_FRAME, THREADS, blocks, find_function, geometry_argument, kernel_arguments
from .workspace import Workspace

_COPIES = 8  # buffers that one launch of store_results takes
_COPIES_ARGUMENT = np.dtype(
    [
        ("from", np.uint64, _COPIES),
        ("to", np.uint64, _COPIES),
        ("count", np.uint64, _COPIES),
        ("words", np.int32, _COPIES),
    ]
)


class CapturedPass:
    """The graph over a workspace; a frame is loaded before it and its results are copied behind it.

    Attributes:
        workspace: its buffers.
        graph: the pass without load and copies.
    """

    def __init__(self, workspace: Workspace) -> None:
        import cupy

        self.workspace = workspace
        plan, first = workspace.plan, workspace.sites[0]
        # Pinned, so that the copy back does not hold up the host.
        self._pinned = cupy.cuda.alloc_pinned_memory(workspace.status.nbytes)
        self._host_status = np.frombuffer(self._pinned, dtype=np.int32, count=workspace.status.size)
        self._plan_copies()
        half = int(plan.dtype == np.float16)
        self._load_frame = [find_function(KERNEL_FRAME, "load_frame", HALF_IN=i, HALF_OUT=half) for i in (0, 1)]
        self._store_results = find_function(KERNEL_FRAME, "store_results", HALF_IN=0, HALF_OUT=half)
        self._load_arguments = kernel_arguments(
            (
                geometry_argument(workspace.shape),
                first.sites,
                first.keys,
                workspace.input,
                plan.input_width,
                first.count,
                workspace.status,
            )
        )
        self.graph = self.capture()

    def capture(self, *, convolutions: bool = True) -> Any:
        """The pass (or its rulebooks alone) as a CUDA graph over the inputs that ``load`` puts in place."""
        import cupy

        workspace, stream = self.workspace, cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.get_current_stream().synchronize()  # buffers may still be in use by work queued there
        with stream:
            # A first run outside the capture loads the kernels, which a capture does not allow; it sees no rows.
            workspace.clear_status()
            workspace.enqueue(convolutions=convolutions)
            stream.synchronize()
            stream.begin_capture()
            workspace.enqueue(convolutions=convolutions)
            return stream.end_capture()

    def run(self, indices: Any, features: Any, *, copy: bool) -> tuple[int, list[int], dict[tuple[str, int], Any]]:
        """One pass over contiguous, aligned arrays of at most ``capacities[0]`` rows; waits for it.

        Returns the fault bits, the sites that each level required, and the arrays ``("features", layer)`` and
        ``("sites", level)`` of the outputs with rows up to the capacity: copies, or with ``copy=False`` the buffers.
        """
        import cupy

        stream = cupy.cuda.get_current_stream()
        self.load(indices, features)
        self.graph.launch(stream)
        results = self._copy_results() if copy else self._results
        status = self.workspace.status
        status.data.copy_to_host_async(self._host_status.ctypes.data, status.nbytes, stream)
        stream.synchronize()
        levels = self.workspace.plan.levels
        required = [len(indices), *(int(v) for v in self._host_status[2 + levels : 1 + 2 * levels])]
        return int(self._host_status[0]), required, results

    def load(self, indices: Any, features: Any) -> None:
        """Put a frame in place."""
        self.workspace.clear_status()
        n, channels = features.shape
        grid = (blocks(n * self.workspace.plan.input_width),)
        arguments = (indices, features, np.int32(n), np.int32(channels), *self._load_arguments)
        self._load_frame[features.dtype == np.float16](grid, (THREADS,), arguments)

    def _plan_copies(self) -> None:
        """Lay out the results of a pass, features and sites, in one allocation."""
        plan, features, sites = self.workspace.plan, self.workspace.features, self.workspace.sites
        levels = {i: plan.tables[plan.table_of[i]].target for i in plan.outputs}
        buffers = {("features", i): (features[i], sites[level].count) for i, level in levels.items()}
        buffers |= {("sites", level): (sites[level].sites, sites[level].count) for level in levels.values()}
        self._places: dict[tuple[str, int], int] = {}
        self._arena_bytes = 0
        for key, (buffer, _) in buffers.items():
            self._places[key] = self._arena_bytes
            self._arena_bytes += -(-buffer.nbytes // 256) * 256
        self._results = {key: buffer for key, (buffer, _) in buffers.items()}
        self._copies = []
        keys = list(buffers)
        for some in (keys[first : first + _COPIES] for first in range(0, len(keys), _COPIES)):
            argument = np.zeros((), dtype=_COPIES_ARGUMENT)
            for slot, key in enumerate(some):
                buffer, count = buffers[key]
                argument["from"][slot], argument["to"][slot] = buffer.data.ptr, self._places[key]
                argument["count"][slot] = count.data.ptr
                argument["words"][slot] = buffer.shape[1] * buffer.itemsize // 16
            words = max(buffers[key][0].nbytes // 16 for key in some)
            self._copies.append((argument, (blocks(words, 4 * THREADS), len(some))))

    def _copy_results(self) -> dict[tuple[str, int], Any]:
        """Queue the copies of all results, whose sizes only the device knows yet."""
        import cupy

        arena = cupy.empty(self._arena_bytes, dtype=cupy.uint8)
        for relative, grid in self._copies:
            argument = relative.copy()
            argument["to"] += np.uint64(arena.data.ptr)
            self._store_results(grid, (THREADS,), (argument,))
        return {
            key: arena[self._places[key] :][: buffer.nbytes].view(buffer.dtype).reshape(buffer.shape)
            for key, buffer in self._results.items()
        }
