"""The parameters of the perception node, in one table."""

from __future__ import annotations

from pathlib import Path

from ..budget import MEASURES, BudgetSettings
from ..device.backend import BACKENDS
from ..errors import InputError
from ..frame import PipelineSettings
from ..frame_features import FEATURE_LEVELS, FeatureExtractor, named_config
from ..sampling.engine import METHODS
from .parameters import ParameterSpec, Values

SPECS = (
    ParameterSpec(
        "n_samples",
        4096,
        "Samples a frame; a cloud with fewer distinct points gives all of them.",
        low=1,
        high=1_000_000,
    ),
    ParameterSpec("range_min", 0.0, "Points nearer to the sensor than this are not used [m].", low=0.0, high=1e6),
    ParameterSpec("range_max", 1e6, "Points farther from the sensor than this are not used [m].", low=0.0, high=1e6),
    ParameterSpec(
        "roi_min", [], "Lower corner x, y, z of the box outside which points are not used [m]; empty: no box.", length=3
    ),
    ParameterSpec(
        "roi_max", [], "Upper corner x, y, z of the box outside which points are not used [m]; empty: no box.", length=3
    ),
    ParameterSpec(
        "budget_ms",
        100.0,
        "A frame that takes longer is published and counted as a missed deadline [ms].",
        low=1.0,
        high=1e5,
    ),
    ParameterSpec(
        "over_budget",
        "features",
        "What gives way when frames are expected to take longer than budget_ms: features (computed for fewer frames), "
        "samples (fewer are taken), or none.",
        choices=MEASURES,
    ),
    ParameterSpec("min_samples", 1024, "Samples that over_budget=samples leaves at least.", low=1, high=1_000_000),
    ParameterSpec(
        "backend",
        "auto",
        "Where sampling runs; auto takes CUDA when a device is there.",
        choices=BACKENDS,
        read_only=True,
    ),
    ParameterSpec("method", "auto", "Sampling method; all give the same samples.", choices=METHODS, read_only=True),
    ParameterSpec(
        "threads", 0, "CPU threads; 0 takes all cores this process may use.", low=0, high=1024, read_only=True
    ),
    ParameterSpec(
        "features",
        "auto",
        "Whether voxel features are computed and published: on, off, or auto, which is on with CUDA and off without.",
        choices=("auto", "on", "off"),
        read_only=True,
    ),
    ParameterSpec("voxel_features", False, "Also publish the active voxels of the network's last stage."),
    ParameterSpec(
        "backbone_config",
        "auto",
        "YAML file of the network, or full, light, or auto: full with CUDA, light without.",
        read_only=True,
    ),
    ParameterSpec("weights", "", "Checkpoint, .pth or .safetensors; empty: seeded random weights.", read_only=True),
    ParameterSpec("seed", 0, "Seed of the random weights.", low=0, high=2**31 - 1, read_only=True),
    ParameterSpec(
        "feature_dtype", "float32", "Arithmetic of the network.", choices=("float32", "float16"), read_only=True
    ),
    ParameterSpec(
        "feature_levels",
        "x_conv4",
        f"Network levels whose features a sample gets, separated by commas: {', '.join(FEATURE_LEVELS)}.",
        read_only=True,
    ),
    ParameterSpec(
        "input_reliability",
        "best_effort",
        "Reliability asked of the publisher of points; best_effort matches every publisher.",
        choices=("best_effort", "reliable"),
        read_only=True,
    ),
    ParameterSpec(
        "stats_bag",
        "",
        "Folder of a bag that the statistics of every frame are recorded in, numbered where it exists; empty: none.",
        read_only=True,
    ),
    ParameterSpec(
        "autostart", False, "Configure and activate at the start, where no launch file does it.", read_only=True
    ),
)


def check_together(values: Values) -> None:
    """Refuse values that do not fit each other.

    Raises:
        InputError: with the sentence for the user.
    """
    if values["range_min"] > values["range_max"]:
        raise InputError(
            f"range_min={values['range_min']:g} must not be above range_max={values['range_max']:g}; "
            "set both atomically to move them past each other"
        )
    unknown = [level for level in _levels(values) if level not in FEATURE_LEVELS]
    if unknown:
        raise InputError(f"parameter feature_levels must name levels out of {', '.join(FEATURE_LEVELS)}, not {unknown}")
    low, high = values["roi_min"], values["roi_max"]
    if low and high and any(a > b for a, b in zip(low, high, strict=True)):
        raise InputError(f"roi_min={low} must not be above roi_max={high} in any coordinate")


def pipeline_settings(values: Values, n_samples: int | None = None) -> PipelineSettings:
    """The part of the parameters that the pipeline reads anew with every frame; ``n_samples``: fewer than they say."""
    return PipelineSettings(
        n_samples=n_samples or values["n_samples"],
        range_min=values["range_min"],
        range_max=values["range_max"] if values["range_max"] < 1e6 else float("inf"),
        roi_min=tuple(values["roi_min"]) or None,
        roi_max=tuple(values["roi_max"]) or None,
    )


def budget_settings(values: Values) -> BudgetSettings:
    """The part of the parameters that the budget reads anew with every frame."""
    return BudgetSettings(
        budget_ms=values["budget_ms"],
        over_budget=values["over_budget"],
        n_samples=values["n_samples"],
        min_samples=values["min_samples"],
    )


def make_extractor(values: Values, backend: str) -> FeatureExtractor | None:
    """The feature extractor that the parameters ask for on ``backend``, or ``None``.

    Raises:
        InputError: the configuration or the weights cannot be used.
    """
    if values["features"] == "off" or (values["features"] == "auto" and backend != "cuda"):
        return None
    return FeatureExtractor(
        named_config(values["backbone_config"], backend),
        weights=Path(values["weights"]) if values["weights"] else None,
        seed=values["seed"],
        dtype=values["feature_dtype"],
        backend=backend,
        levels=_levels(values),
    )


def _levels(values: Values) -> tuple[str, ...]:
    return tuple(level.strip() for level in values["feature_levels"].split(","))
