"""``radius-fps process`` beside a plain loop that reads, answers and writes one cloud after the other.

Both write the same messages. The loop uses the same worker, so the difference is what overlapping brings.

    python benchmarks/process_bag.py [--frames 200] [--runs 5] [--features]

Bags are synthetic, and those in the folder named by RADIUS_FPS_DATA where it is set.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from machine import write_results
from real_data import BAGS, data_folder
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from radius_fps_ros.clouds import Cloud, encode_cloud
from radius_fps_ros.clouds.bags import POINT_CLOUD, deserialize_cloud, open_bag, serialize_cloud
from radius_fps_ros.clouds.synthetic import street_scan
from radius_fps_ros.frame_features import named_config
from radius_fps_ros.offline import FeatureSettings, Job, process_bag
from radius_fps_ros.offline.frames import FrameWorker

STORE = get_typestore(Stores.ROS2_KILTED)
PLUGINS = {"sqlite3": StoragePlugin.SQLITE3, "mcap": StoragePlugin.MCAP}


class Quiet:
    def begin(self, clouds, done):
        pass

    def advance(self):
        pass

    def say(self, sentence):
        raise RuntimeError(sentence)


def write_synthetic(path, storage, frames, points=120_000):
    """A bag of ``frames`` street scans, ten different ones in turn."""
    scans = [encode_cloud(Cloud.of_records(street_scan(points, seed))) for seed in range(10)]
    types = STORE.types
    with Writer(path, version=9, storage_plugin=PLUGINS[storage]) as writer:
        connection = writer.add_connection("/points", POINT_CLOUD, typestore=STORE)
        for k in range(frames):
            stamp = types["builtin_interfaces/msg/Time"](sec=k // 10, nanosec=k % 10 * 100_000_000)
            header = types["std_msgs/msg/Header"](stamp=stamp, frame_id="lidar")
            cdr = serialize_cloud(scans[k % len(scans)], header)
            deserialize_cloud(cdr)
            writer.write(connection, k * 100_000_000, cdr)


def plain(bag, out, storage, worker):
    """Everything in one thread; returns the number of clouds."""
    count = 0
    with open_bag(bag) as opened, Writer(out, version=9, storage_plugin=PLUGINS[storage]) as writer:
        kinds = ("sampled", "features")
        topics = {
            (t, k): writer.add_connection(f"{t}/{k}", POINT_CLOUD, typestore=STORE)
            for t in opened.counts
            for k in kinds
        }
        for message in opened:
            answer = worker(message.cdr)
            for kind, cdr in zip(kinds, (answer.sampled, answer.features), strict=True):
                if cdr is not None:
                    writer.write(topics[message.topic, kind], message.timestamp, cdr)
            count += 1
    return count


def real_bags():
    folder = data_folder((BAGS,))
    return [] if folder is None else sorted(path.parent for path in folder.glob(BAGS))


def measure(bag, storage, features, runs, folder):
    """Clouds a second, runs interleaved; compiling and the report are left out of both."""
    settings = FeatureSettings(named_config("light", "cpu")) if features else None
    job = {"bag": bag, "storage": storage, "features": settings}
    worker = FrameWorker(Job(out=folder / "plain", **job), "cpu", None)
    worker.warm_up()
    rates = {"plain": [], "1 thread": [], "all threads": []}
    for _ in range(runs):
        begin = time.perf_counter()
        count = plain(bag, folder / "plain", storage, worker)
        rates["plain"].append(count / (time.perf_counter() - begin))
        shutil.rmtree(folder / "plain")
        for name, threads in (("1 thread", 1), ("all threads", None)):
            outcome = process_bag(Job(out=folder / "process", threads=threads, **job), Quiet())
            rates[name].append(outcome.report["frames_per_second"])
            shutil.rmtree(folder / "process")
    return count, {name: round(statistics.median(values), 1) for name, values in rates.items()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--frames", type=int, default=200)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--features", action="store_true")
    given = arguments.parse_args()
    rows, real = [], real_bags()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bags = []
        for storage in PLUGINS:
            write_synthetic(folder / f"street 120,000 {storage}", storage, given.frames)
            bags.append(folder / f"street 120,000 {storage}")
        for bag in bags + real:
            storage = "mcap" if any(file.suffix == ".mcap" for file in bag.iterdir()) else "sqlite3"
            clouds, rates = measure(bag, storage, given.features, given.runs, folder)
            rows.append({"bag": bag.name, "clouds": clouds, **rates, "load_average": round(os.getloadavg()[0], 1)})
            figures = ", ".join(f"{name} {rate}" for name, rate in rates.items())
            print(f"{bag.name}, {clouds} clouds: {figures} clouds a second", flush=True)
    print(f"written to {write_results('process_bag' + '_features' * given.features, rows)}")


if __name__ == "__main__":
    main()
