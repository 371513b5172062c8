"""After the warm-up no frame waits for a compiler, whatever its size."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

# A process of its own: others before it would have loaded the kernels.
PROGRAM = """
from radius_fps_ros.clouds import Cloud, encode_cloud
from radius_fps_ros.clouds.synthetic import street_scan
from radius_fps_ros.cuda_frame import CudaFramePipeline
from radius_fps_ros.device import BackendChoice
from radius_fps_ros.device.kernels import _load
from radius_fps_ros.frame import PipelineSettings
from radius_fps_ros.frame_features import FeatureExtractor, named_config

extractor = FeatureExtractor(named_config("full", "cuda"), backend="cuda") if {features} else None
pipeline = CudaFramePipeline(BackendChoice("cuda", "requested"), extractor=extractor)
pipeline.warm_up()
loaded = _load.cache_info().misses
for points in (130_000, 500, 20_000, 400_000, 3):
    for n_samples in (4096, 300, 1):
        result = pipeline.process(encode_cloud(Cloud.of_records(street_scan(points))), PipelineSettings(n_samples))
        if result.features is not None:
            result.features()
print(loaded, _load.cache_info().misses)
"""


@pytest.mark.parametrize("features", [False, True])
def test_no_frame_loads_a_kernel(features):
    program = PROGRAM.format(features=features)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    before, after = map(int, ended.stdout.split())
    assert before == after > 0
