"""The CPU backend of the certified Hausdorff distance: Numba kernels, one batch a round, all cores."""
