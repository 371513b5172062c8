"""``radius-fps process``: the whole pipeline over a bag, without a ROS graph."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType, TracebackType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..device import select_backend
from ..errors import InputError
from ..frame import PipelineSettings
from ..frame_features import FEATURE_LEVELS, named_config
from ..offline import FeatureSettings, Job, Outcome, process_bag
from ..offline.partial_bag import partial_folder
from ..offline.settings import COPY_ALL, COPY_NONE, STORAGES
from ..sampling.engine import METHODS
from . import INTERRUPTED
from .options import FINITE, FiniteRange

RANGE = FiniteRange(0.0, 1e6)


def _levels(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    levels = tuple(level.strip() for entry in given for level in entry.split(","))
    unknown = [level for level in levels if level not in FEATURE_LEVELS]
    if unknown:
        raise InputError(f"--levels must name levels out of {', '.join(FEATURE_LEVELS)}, not {unknown}")
    return levels


@click.command(
    epilog="Example: radius-fps process drive.mcap -o sampled --n 4096 --copy /tf --copy /tf_static --features"
)
@click.argument("bag", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder of the bag that is written."
)
@click.option("--topic", "topics", multiple=True, help="Process only this topic; repeatable.  [default: all clouds]")
@click.option(
    "--copy", multiple=True, metavar="all|none|TOPIC", default=(COPY_NONE,), show_default=True,
    help="Topics of any type that are copied as they are; a TOPIC is repeatable.",
)  # fmt: skip
@click.option("--storage", type=click.Choice(STORAGES), help="Of the written bag.  [default: as BAG]")
@click.option(
    "--n", "n_samples", type=click.IntRange(1, 1_000_000), default=4096, show_default=True, help="Samples a cloud."
)
@click.option(
    "--range-min", type=RANGE, default=0.0, show_default=True, help="Points nearer than this are not used [m]."
)
@click.option(
    "--range-max", type=RANGE, default=1e6, show_default=True, help="Points farther than this are not used [m]."
)
@click.option("--roi-min", type=FINITE, nargs=3, metavar="X Y Z", help="Lower corner of the box that is used [m].")
@click.option("--roi-max", type=FINITE, nargs=3, metavar="X Y Z", help="Upper corner of the box that is used [m].")
@click.option(
    "--method", type=click.Choice(METHODS), default="auto", show_default=True, help="All give the same samples."
)
@click.option("--backend", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option(
    "--threads", type=int, help="CPU threads, each sampling a cloud of its own.  [default: all that may be used]"
)
@click.option("--features", is_flag=True, help="Also write voxel features of the samples.")
@click.option("--config", help="Network: full, light, or a YAML file.  [default: full with CUDA, light without]")
@click.option("--weights", type=click.Path(path_type=Path), help="Checkpoint (.pth or .safetensors); without: random.")
@click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the random weights."
)
@click.option("--dtype", type=click.Choice(["float32", "float16"]), default="float32", show_default=True)
@click.option(
    "--levels", "--level", "levels", multiple=True, callback=_levels, metavar="LEVEL,...",
    help=f"Levels whose features a sample gets, out of {', '.join(FEATURE_LEVELS)}.  [default: x_conv4]",
)  # fmt: skip
@click.option(
    "--save-every", type=RANGE, default=10.0, show_default=True, metavar="S",
    help="Seconds of work that a kill may cost (or a tenth of all work).",
)  # fmt: skip
@click.option("--restart", is_flag=True, help="Begin anew: drop an interrupted run, replace a finished output.")
def command(
    bag: Path,
    output: Path,
    topics: tuple[str, ...],
    copy: tuple[str, ...],
    storage: str | None,
    n_samples: int,
    range_min: float,
    range_max: float,
    roi_min: tuple[float, float, float] | None,
    roi_max: tuple[float, float, float] | None,
    method: str,
    backend: str,
    threads: int | None,
    features: bool,
    config: str | None,
    weights: Path | None,
    seed: int,
    dtype: str,
    levels: tuple[str, ...],
    save_every: float,
    restart: bool,
) -> None:
    """Sample every cloud of BAG and write the results as another bag, as fast as the machine can.

    BAG is a folder, a metadata.yaml, a .db3 or an .mcap file. For each PointCloud2 topic the output has TOPIC/sampled
    (the samples with all their fields) and with --features TOPIC/features, at the recorded times, and beside them
    report.json and report.html.

    A run that was interrupted, in whatever way, goes on where it stopped when the same command is given again; until
    it is complete its work lies in OUTPUT.partial. A cloud that cannot be used is reported and counted.

    Exit code: 0 done (bad clouds included); 2 bad input, also when not one cloud could be used; 70 a fault of this
    program; 130 interrupted by Ctrl-C or SIGTERM.
    """
    if not features:
        for name, given in (("config", config), ("weights", weights), ("levels", levels)):
            if given:
                raise InputError(f"--{name} has no effect without --features")
    if len(copy) > 1 and {COPY_ALL, COPY_NONE} & set(copy):
        raise InputError("--copy all and --copy none stand alone; a topic of that name is written with its slash")
    job = Job(
        bag=bag,
        out=output,
        topics=topics,
        copy=copy,
        storage=storage,
        pipeline=_pipeline_settings(n_samples, range_min, range_max, roi_min, roi_max),
        features=_feature_settings(config or "auto", backend, weights, seed, dtype, levels) if features else None,
        backend=backend,
        method=method,
        threads=threads,
        restart=restart,
        save_every=save_every,
    )
    with _Signals() as signals, _Display() as display:
        outcome = process_bag(job, display, signals.should_stop)
    if not outcome.complete:
        click.echo(
            f"radius-fps: interrupted after {outcome.done:,} of {outcome.clouds:,} clouds, which are kept in "
            f"{partial_folder(output)}; the same command goes on from there",
            err=True,
        )
        sys.exit(INTERRUPTED)
    _print(outcome, output)


def _pipeline_settings(
    n_samples: int,
    range_min: float,
    range_max: float,
    roi_min: tuple[float, float, float] | None,
    roi_max: tuple[float, float, float] | None,
) -> PipelineSettings:
    if range_min > range_max:
        raise InputError(f"--range-min {range_min:g} must not be above --range-max {range_max:g}")
    if roi_min and roi_max and any(a > b for a, b in zip(roi_min, roi_max, strict=True)):
        raise InputError(f"--roi-min {roi_min} must not be above --roi-max {roi_max} in any coordinate")
    return PipelineSettings(n_samples, range_min, range_max if range_max < 1e6 else float("inf"), roi_min, roi_max)


def _feature_settings(
    config: str, backend: str, weights: Path | None, seed: int, dtype: str, levels: tuple[str, ...]
) -> FeatureSettings:
    network = named_config(config, select_backend(backend).name)
    return FeatureSettings(network, weights, seed, dtype, levels or ("x_conv4",))


def _print(outcome: Outcome, output: Path) -> None:
    report = outcome.report
    assert report is not None
    counts, coverage, total = report["counts"], report["coverage_radius"], report["milliseconds"]["total"]
    rate = report["frames_per_second"]
    click.echo(
        f"{report['bag']}: {counts['clouds']:,} clouds on {', '.join(t['name'] for t in report['topics'])}, "
        f"{counts['processed']:,} processed, {counts['refused']:,} refused, {counts['copied']:,} messages copied"
    )
    pace = "" if rate is None else f" ({rate:,.1f} clouds a second)"
    radius = "infinite" if coverage["p50"] is None else f"{coverage['p50']:.4g} m"
    click.echo(
        f"{report['seconds']:.1f} s{pace} on {report['backend']}, a cloud p50 {total['p50']:.1f}, "
        f"p99 {total['p99']:.1f} ms; coverage radius p50 {radius}"
    )
    for sentence in report["warnings"]:
        click.echo(f"note: {sentence}")
    click.echo(f"written to {output}: {counts['written']:,} messages, report.json and report.html")


class _Signals:
    """Ctrl-C and SIGTERM: before the first message they interrupt, from then on they ask for an orderly stop."""

    def __init__(self) -> None:
        self._asked = self._orderly = False

    def should_stop(self) -> bool:
        """Whether a signal came. From the first question on the first signal only shows here; a second interrupts."""
        self._orderly = True
        return self._asked

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._asked or not self._orderly:
            raise KeyboardInterrupt
        self._asked = True

    def __enter__(self) -> _Signals:
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class _Rate(ProgressColumn):
    """Clouds a second, as rich measures the speed for the time that is left."""

    def render(self, task: Task) -> Text:
        """The rate, or nothing before there is one."""
        return Text("" if task.speed is None else f"{task.speed:,.1f}/s", style="progress.data.speed")


class _Display:
    """A progress bar on stderr when it is a terminal; sentences in any case."""

    def __enter__(self) -> _Display:
        self._bar: Progress | None = None
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, clouds: int, done: int) -> None:
        """Show the bar."""
        if done:
            self.say(f"going on after {done:,} of {clouds:,} clouds")
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("clouds"), BarColumn(), MofNCompleteColumn(), _Rate(), TextColumn("left:"),
                TimeRemainingColumn(), console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task("clouds", total=clouds, completed=done)
            self._bar.start()

    def advance(self) -> None:
        """One more cloud is done."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def say(self, sentence: str) -> None:
        """Print a sentence above the bar."""
        line = f"radius-fps: {sentence}"
        if self._bar is None:
            click.echo(line, err=True)
        else:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
