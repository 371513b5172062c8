"""How all kernels are compiled."""

from ...device.jit import cached_jit

kernel = cached_jit(__file__)
parallel_kernel = cached_jit(__file__, parallel=True)
