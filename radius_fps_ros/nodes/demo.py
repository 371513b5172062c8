"""The demonstration: the perception node as its own process, a stream through it, a live table, a picture."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.serialization import deserialize_message
from rich.console import Console
from rich.live import Live
from rich.table import Table
from sensor_msgs.msg import PointCloud2

from ..clouds import decode_cloud
from ..clouds.picture import save_picture
from ..errors import RadiusFpsError
from .memory import keep_freed_memory
from .monitor import Exchange, StreamMonitor
from .processes import NodeProcess, spinning_node, use_large_cloud_transport
from .stream import StreamFrame, bag_frames, play, street_frames

RCLError = rclpy_implementation.RCLError
INTERRUPTED = 130
NAMESPACE = "/demo"
PERCEPTION = f"{NAMESPACE}/radius_fps_perception"
ROWS = 12


def repeated(frames: list[StreamFrame], seconds: float) -> list[StreamFrame]:
    """A short recording played again and again until ``seconds`` are filled."""
    length = frames[-1].seconds + max(frames[-1].seconds / max(len(frames) - 1, 1), 0.05)
    rounds = max(1, round(seconds / length))
    return [StreamFrame(f.topic, f.seconds + k * length, f.cdr) for k in range(rounds) for f in frames]


def live_table(exchanges: list[Exchange]) -> Table:
    """The newest frames, one a row."""
    table = Table(title="radius_fps_ros: exact farthest point sampling, frame by frame")
    for heading in ("frame", "points in", "samples out", "sampling ms", "node ms", "latency ms", "drops"):
        table.add_column(heading, justify="right")
    first = max(0, len(exchanges) - ROWS)
    for number, exchange in enumerate(exchanges[first:], first + 1):
        table.add_row(str(number), *_row(exchange))
    return table


def _row(exchange: Exchange) -> list[str]:
    stats, latency = exchange.stats, exchange.latency
    if stats is None:
        return ["..."] * 6
    if exchange.refused:
        return [f"{stats.points_in:,}", "refused", stats.message, "", "", f"{stats.frames_dropped}"]
    stages = dict(zip(stats.stage_names, stats.stage_milliseconds, strict=True))
    return [
        f"{stats.points_in:,}",
        f"{stats.samples:,}",
        f"{stages['sample']:.1f}",
        f"{stats.total_milliseconds:.1f}",
        "..." if latency is None else f"{latency:.1f}",
        f"{stats.frames_dropped}",
    ]


def differences(exchange: Exchange) -> str | None:
    """What is wrong with an answer, in words; ``None`` when header, fields and points are as they came."""
    if exchange.sampled is None or exchange.stats is None:
        return "it was not answered"
    question, answer = deserialize_message(exchange.cdr, PointCloud2), exchange.sampled
    if answer.header != question.header:
        return "stamp or frame id changed"
    if answer.fields != question.fields or answer.point_step != question.point_step:
        return "fields changed"
    known = {bytes(record) for record in decode_cloud(question).records.view(f"V{question.point_step}")}
    if any(bytes(record) not in known for record in decode_cloud(answer).records.view(f"V{answer.point_step}")):
        return "a sampled point is not in the cloud"
    return None


def recorded_stream(bag: Path, seconds: float) -> tuple[list[StreamFrame], str]:
    """The clouds of a bag, repeated to fill ``seconds``, and words for them."""
    frames = list(bag_frames(bag))
    topics = ", ".join(sorted({frame.topic for frame in frames}))
    return repeated(frames, seconds), f"{len(frames)} clouds of {topics} from {bag.name}, repeated"


def run_stream(console: Console, node: NodeProcess, make_frames: Callable[[], list[StreamFrame]]) -> StreamMonitor:
    """Bring the node up, send the stream, and wait for the answers; frames are made while the node's process starts."""
    stop = threading.Event()
    with spinning_node("radius_fps_demo", NAMESPACE) as ros:
        monitor = StreamMonitor(ros, PERCEPTION)
        frames = make_frames()
        node.bring_up(ros, PERCEPTION)
        if not monitor.wait_until_connected():
            raise RadiusFpsError("the node did not connect to the demo's topics within 60 s")
        player = threading.Thread(target=play, args=(frames, monitor.publish), kwargs={"stop": stop}, daemon=True)
        player.start()
        try:
            with Live(live_table([]), console=console, refresh_per_second=5) as live:
                while player.is_alive():
                    time.sleep(0.2)
                    live.update(live_table(monitor.exchanges))
                monitor.wait_for_answers(timeout=5.0)
                live.update(live_table(monitor.exchanges))
        finally:
            stop.set()
            player.join()
        return monitor


def summarize(console: Console, monitor: StreamMonitor, picture: Path) -> bool:
    """Print what happened and draw the last frame; True when every frame was answered and nothing was changed."""
    exchanges = monitor.exchanges
    answered = [exchange for exchange in exchanges if exchange.answered]
    faults = {text for exchange in exchanges[-10:] if (text := differences(exchange))}
    for exchange in exchanges:
        if exchange.refused and exchange.stats is not None:
            faults.add(f"refused: {exchange.stats.message}")
    complete = len(answered) == len(exchanges) > 0 and not monitor.unexpected and not faults
    console.print(f"\nAnswered {len(answered)} of {len(exchanges)} frames.", style="green" if complete else "red")
    for fault in sorted(faults):
        console.print(f"Fault: {fault}.", style="red")
    if answered:
        latency = np.percentile([exchange.latency for exchange in answered], (50, 99))
        stats = answered[-1].stats
        assert stats is not None
        if stats.frames_dropped:
            console.print(
                "The node drops a waiting frame for a newer one when the machine is too slow or too busy for the "
                "stream; end other work, or try fewer samples.",
                style="red",
            )
        console.print(
            f"Publish to sampled cloud received: p50 {latency[0]:.1f} ms, p99 {latency[1]:.1f} ms; "
            f"{stats.samples:,} samples by {stats.method} on {stats.backend}, "
            f"coverage radius {stats.coverage_radius:.2f} m, {stats.frames_dropped} dropped."
        )
    last = exchanges[-1] if exchanges else None
    if last is not None and last.sampled is not None:
        question, answer = (decode_cloud(m) for m in (deserialize_message(last.cdr, PointCloud2), last.sampled))
        title = f"{len(question):,} points from above, {len(answer):,} exact farthest point samples"
        try:
            save_picture(picture, question.xyz, answer.xyz, title)
        except OSError as error:
            raise RadiusFpsError(f"the picture {picture} cannot be written: {error.strerror or error}") from error
        console.print(f"Picture: {picture}")
    return complete


@click.command()
@click.option("--bag", type=click.Path(path_type=Path), help="Replay this bag instead of the street.")
@click.option("--seconds", type=click.IntRange(1, 60), default=10, show_default=True, help="Length of the stream.")
@click.option("--samples", type=click.IntRange(1, 1_000_000), default=4096, show_default=True, help="Samples a frame.")
@click.option("--picture", type=click.Path(path_type=Path), default=Path("out/demo.png"), show_default=True)
def main(bag: Path | None, seconds: int, samples: int, picture: Path) -> None:
    """Run the perception node on a stream of clouds and show what it does."""
    console = Console()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the demo as Ctrl-C does
    use_large_cloud_transport()
    keep_freed_memory()
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")  # a demo has no business on the robot's network
    try:
        # A bag is read before anything starts, so that one that cannot be read is said at once.
        recorded, words = recorded_stream(bag, seconds) if bag else ([], "the synthetic 64-beam street at 10 Hz")
        console.print(f"Stream: {words}. Configuring the node (the first run compiles) ...")
        with NodeProcess("perception_node", namespace=NAMESPACE, parameters={"n_samples": samples}) as node:
            monitor = run_stream(console, node, lambda: recorded or list(street_frames(seconds * 10)))
            code = node.stop()
        complete = summarize(console, monitor, picture)
        if code != 0:
            console.print(f"The node ended with exit code {code}.", style="red")
    except (RadiusFpsError, RCLError) as error:
        sys.exit(f"demo: {' '.join(str(error).split())}")
    except KeyboardInterrupt:
        console.print("Interrupted.")
        sys.exit(INTERRUPTED)
    sys.exit(0 if complete and code == 0 else 1)


if __name__ == "__main__":
    main()
