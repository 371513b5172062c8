"""The pipeline of a CUDA device: what `radius_fps_ros.pipeline.FramePipeline` does on the host, without coming back."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import cupy
import numpy as np

from ..clouds import Cloud, CloudData, encode_cloud
from ..clouds.decode import CloudBytes, coordinate_fields
from ..clouds.synthetic import street_scan
from ..device import BackendChoice
from ..errors import BackendError, InputError
from ..faults import faults_as_sentences, is_out_of_memory
from ..frame import FrameResult, PipelineSettings, check_usable
from ..frame_features import FeatureExtractor, FrameFeatures
from ..sampling import SamplingStats
from ..sampling.cuda import CudaEngine
from ..sampling.cuda.engine import Output, read_summary
from ..sampling.fps import checked_count
from ..sparse.cuda.feature_pass import FeaturePass
from ..sparse.point_features import check_fields
from .buffers import FrameBuffers
from .kernels import launch
from .layout import capacity_for, frame_argument
from .passes import NETWORK_STAGES, FramePass
from .upload import Upload, Uploads

WARM_UP_POINTS = 1 << 17  # a LiDAR of 64 or 128 beams
MOST_PASSES = 8  # sizes of clouds, with and without features, whose buffers and graphs are kept


class CudaFramePipeline:
    """See `radius_fps_ros.frame.Pipeline`.

    A message's bytes are copied to pinned memory and on to the device when it arrives, while the frame before may still
    be in work. Decoding, cropping, sampling, voxelization, the network and the gathering of features follow on one
    stream; the host waits once, for one box with all results. From the second frame of a size on, sampling and network
    are one CUDA graph.
    """

    def __init__(self, choice: BackendChoice, method: str = "auto", extractor: FeatureExtractor | None = None) -> None:
        """The network of ``extractor`` must have been made for CUDA."""
        self._choice, self._method, self._extractor = choice, method, extractor
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._before_download, self._after_download = cupy.cuda.Event(), cupy.cuda.Event()
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Hold no device memory."""
        self._sampler = CudaEngine(self._method)
        self._network: FeaturePass | None = None
        self._uploads = Uploads()
        self._passes: dict[Any, FramePass] = {}

    @property
    def backend(self) -> BackendChoice:
        """The backend that runs, and why."""
        return self._choice

    def warm_up(self) -> None:
        """See `Pipeline.warm_up`."""
        self._sampler.warm_up()  # for clouds of other sizes, which other methods sample
        fields = () if self._extractor is None else self._extractor.config.fields
        message = _scan_with(("x", "y", "z", *fields))
        for _ in range(3):  # queued, captured, replayed
            result = self.process(message, PipelineSettings())
            if result.features is not None:
                result.features()

    def load(self, message: Any) -> Upload:
        """Start the upload; see `Pipeline.load`."""
        return self._uploads.begin(message)

    def process(self, message: Any, settings: PipelineSettings, *, features: bool = True) -> FrameResult:
        """See `Pipeline.process`."""
        upload = message if isinstance(message, Upload) else self.load(message)
        with self._faults(upload.cloud):
            upload.check()
            return self._process(upload, settings, features and self._extractor is not None)

    @contextmanager
    def _faults(self, cloud: CloudBytes | None) -> Iterator[None]:
        """CUDA's errors as BackendError; where memory ran out, all that this holds is given back first."""
        try:
            with faults_as_sentences(f"working on {'a cloud' if cloud is None else f'{cloud.count} points'}"):
                yield
        except (BackendError, MemoryError) as error:
            if is_out_of_memory(error):
                self._begin_anew()
            raise

    def _process(self, upload: Upload, settings: PipelineSettings, wanted: bool) -> FrameResult:
        begin = time.perf_counter()
        cloud, slot = upload.cloud, upload.slot
        assert cloud is not None
        if slot is None:
            if cloud.layout.fields:
                coordinate_fields(cloud.layout.dtype)
            raise InputError("the cloud has no points")
        no_features = self._why_no_features(cloud) if wanted else None
        network = self._network_of(self._extractor) if wanted and no_features is None else None
        fields = self._extractor.config.fields if self._extractor is not None and network is not None else ()
        frame = frame_argument(cloud, fields, settings)
        n_samples = checked_count(min(settings.n_samples, capacity_for(cloud.count)))
        work = self._pass(cloud, n_samples, network, len(fields))
        box = work.buffers
        with self._stream as stream:
            stream.wait_event(slot.end)
            box.clear()
            decoded = (box.points, box.columns, box.outbox["counts"], box.start, work.stamp_of(None))
            launch("decode", box.capacity, slot.data, frame, np.uint32(box.capacity), *decoded)
            output = work.run(n_samples)
            before = "sample" if network is None else "gather"
            packed = (box.outbox["rows"], box.outbox["records"], work.stamp_of(before))
            launch("pack", 32 * n_samples, slot.data, frame, output.indices, output.summary, *packed)
            self._fetch(work, output)
        finite, used = (int(count) for count in box.inbox["counts"])
        check_usable(cloud.count, finite, used)
        spent = {"upload": cupy.cuda.get_elapsed_time(slot.begin, slot.end), **work.milliseconds()}
        spent["download"] = cupy.cuda.get_elapsed_time(self._before_download, self._after_download)
        on_network = {name: spent.pop(name) for name in NETWORK_STAGES if name in spent}
        method = self._sampler.method_for(box.capacity, n_samples)
        raw = read_summary(box.inbox["summary"], box.inbox["rows"], used, method)
        count = len(raw.indices)
        sampled = _first_records(cloud, box, count)
        wall = (time.perf_counter() - begin) * 1e3
        # What the device did not work in: queueing, waiting for each other, the message's bytes.
        spent["host"] = wall - sum(on_network.values()) - sum(spent[name] for name in spent if name != "upload")
        give_features = None
        if wanted:
            give_features = partial(self._features, work, output, n_samples, count, on_network, no_features)
        return FrameResult(
            sampled=sampled,
            indices=raw.indices.copy(),
            points_in=cloud.count,
            points_used=used,
            coverage_radius=float(np.sqrt(np.float64(raw.coverage_squared))),
            stats=SamplingStats(
                backend=self._choice.name,
                backend_reason=self._choice.reason,
                method=raw.method,
                rounds=raw.rounds,
                voxels=raw.voxels,
                skip_rate=raw.skip_rate,
                milliseconds=spent["sample"],
                threads=0,
            ),
            milliseconds={"load": upload.milliseconds, **spent},
            features=give_features,
            features_ms=sum(on_network.values()),
        )

    def _network_of(self, extractor: FeatureExtractor | None) -> FeaturePass:
        assert extractor is not None
        if self._network is None:
            with self._stream:
                self._network = FeaturePass(extractor.network, extractor.config, extractor.levels)
        return self._network

    def _why_no_features(self, cloud: CloudBytes) -> InputError | None:
        assert self._extractor is not None
        try:
            check_fields(cloud.layout.dtype, self._extractor.config.fields)
        except InputError as error:
            return error
        return None

    def _pass(self, cloud: CloudBytes, n_samples: int, network: FeaturePass | None, columns: int) -> FramePass:
        """The pass for clouds of this size and layout; the least recently used one makes room for a new one."""
        sizes = capacity_for(cloud.count), capacity_for(n_samples), cloud.layout.point_step
        key = (*sizes, network is not None)
        work = self._passes.pop(key, None)
        if work is None:
            while len(self._passes) >= MOST_PASSES:
                self._passes.pop(next(iter(self._passes)))
            with self._stream:
                channels, words = (0, 0) if network is None else (network.channels, network.status.size)
                work = FramePass(FrameBuffers(*sizes, columns, channels, words), self._sampler, network)
        self._passes[key] = work
        return work

    def _fetch(self, work: FramePass, output: Output) -> None:
        """Download what is to be known of a frame, and wait for it."""
        box = work.buffers
        status: tuple[Any, np.uint32] = (np.uintp(0), np.uint32(0))
        if work.network is not None:
            status = (work.network.status, np.uint32(work.network.status.size))
        words = np.uint32(2 * output.summary.size)
        reported = (box.outbox["summary"], *status, box.outbox["status"], work.stamp_of("pack"))
        launch("report", 1, output.summary, words, *reported)
        self._before_download.record(self._stream)
        box.download()
        self._after_download.record(self._stream)
        self._stream.synchronize()

    def _features(
        self,
        work: FramePass,
        output: Output,
        n_samples: int,
        count: int,
        milliseconds: dict[str, float],
        no_features: InputError | None,
    ) -> FrameFeatures:
        """The features that came with a frame's samples; computed again where the network's buffers were too small."""
        if no_features is not None:
            raise no_features
        network, box = work.network, work.buffers
        assert network is not None
        with self._faults(None):
            made = network.read(box.inbox["status"])
            while made.overflowed:
                with self._stream:
                    work.repeat_network(output, n_samples)
                    self._fetch(work, output)
                milliseconds = {name: spent for name, spent in work.milliseconds().items() if name in NETWORK_STAGES}
                made = network.read(box.inbox["status"])
        return FrameFeatures(
            rows=box.inbox["features"][:count],
            last_stage=network.last_stage,
            voxels=made.voxels,
            dropped_voxels=made.dropped_voxels,
            recaptures=made.recaptures,
            milliseconds=milliseconds,
        )


def _first_records(cloud: CloudBytes, box: FrameBuffers, count: int) -> CloudData:
    step = cloud.layout.point_step
    data = array("B")
    data.frombytes(box.inbox["records"][: count * step].data)
    return CloudData(
        width=count,
        fields=cloud.fields,
        is_bigendian=cloud.layout.is_bigendian,
        point_step=step,
        data=data,
        is_dense=True,
    )


def _scan_with(names: Sequence[str]) -> CloudData:
    """A scan of `WARM_UP_POINTS` with these fields; those that a LiDAR does not give are 0."""
    scan = street_scan(WARM_UP_POINTS)
    records = np.zeros(len(scan), [(name, np.float32) for name in dict.fromkeys(names)])
    for name in set(names) & set(scan.dtype.names or ()):
        records[name] = scan[name]
    return encode_cloud(Cloud.of_records(records))
