import numpy as np

from radius_fps_ros.sampling import farthest_point_sampling

points = np.random.default_rng(0).normal(size=(100_000, 3)).astype(np.float32)
result = farthest_point_sampling(points, 4096)
print(result.indices[:5], result.coverage_radius, result.stats)
