"""The CUDA sources of this package, and how they are launched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...device import KernelFile
from .layout import SHAPES

_PACKAGE = "radius_fps_ros.sampling.cuda"


def _variants(method: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    return tuple((("THREADS", shape.threads), ("HELD", shape.held)) for shape in SHAPES[method])


KERNEL_BRUTE = KernelFile(_PACKAGE, "brute.cu")
KERNEL_SINGLE_BLOCK = KernelFile(_PACKAGE, "single_block.cu", variants=_variants("single_block"))
KERNEL_CLUSTER = KernelFile(_PACKAGE, "cluster.cu", variants=_variants("cluster"))
KERNEL_ORDER = KernelFile(_PACKAGE, "order.cu", variants=((("SPHERICAL", 0),), (("SPHERICAL", 1),)))
KERNEL_RADIUS = KernelFile(_PACKAGE, "radius.cu")
KERNEL_LOOKAHEAD = KernelFile(_PACKAGE, "lookahead.cu")
KERNELS = (KERNEL_BRUTE, KERNEL_SINGLE_BLOCK, KERNEL_CLUSTER, KERNEL_ORDER, KERNEL_RADIUS, KERNEL_LOOKAHEAD)


class Kernel:
    """One ``__global__`` function on the current device.

    Args:
        file: its source.
        name: its name in the source.
        cooperative: all blocks run at once, so that they can wait for each other.
        defines: the macros of the variant.
    """

    def __init__(self, file: KernelFile, name: str, *, cooperative: bool = False, **defines: int) -> None:
        self._function = file.load(**defines).get_function(name).kernel
        self._cooperative = cooperative

    def __call__(self, blocks: int, threads: int, *args: Any) -> None:
        """Launch on CuPy's current stream."""
        self._function((blocks,), (threads,), args, enable_cooperative_groups=self._cooperative)


class Kernels:
    """The kernels of one device, each compiled, or loaded from CuPy's cache, when it is first used."""

    def __getattr__(self, name: str) -> Kernel:
        """Load the kernel ``name``; the next access finds it as an attribute."""
        kernel = _LOADERS[name]()
        setattr(self, name, kernel)
        return kernel


_LOADERS: dict[str, Callable[[], Kernel]] = {
    "brute_start": lambda: Kernel(KERNEL_BRUTE, "brute_start"),
    "brute_update": lambda: Kernel(KERNEL_BRUTE, "brute_update"),
    "brute_choose": lambda: Kernel(KERNEL_BRUTE, "brute_choose"),
    **{
        shape.kernel: partial(Kernel, file, method, THREADS=shape.threads, HELD=shape.held)
        for method, file in (("single_block", KERNEL_SINGLE_BLOCK), ("cluster", KERNEL_CLUSTER))
        for shape in SHAPES[method]
    },
    "order_hilbert": lambda: Kernel(KERNEL_ORDER, "order", cooperative=True, SPHERICAL=0),
    "order_spherical": lambda: Kernel(KERNEL_ORDER, "order", cooperative=True, SPHERICAL=1),
    "radius": lambda: Kernel(KERNEL_RADIUS, "radius", cooperative=True),
    "lookahead": lambda: Kernel(KERNEL_LOOKAHEAD, "lookahead", cooperative=True),
}
