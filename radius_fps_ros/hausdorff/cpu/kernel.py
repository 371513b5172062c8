"""How all kernels are compiled, and what they report."""

from ...device.jit import cached_jit

# Fused multiply-adds round less often than rounding.py assumes, so contraction keeps its bounds valid.
jit = cached_jit(__file__, error_model="numpy", fastmath={"contract"})

# A kernel's report: farthest distance, its x, y, z, largest closed bound, triangles, and a flag that ends the kernel.
STOP = 6
