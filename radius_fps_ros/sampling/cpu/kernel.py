"""How all kernels are compiled: no fastmath, see arithmetic.py."""

from ...device.jit import cached_jit

kernel = cached_jit(__file__)
