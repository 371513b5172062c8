"""``radius-fps process``: the report agrees with the bag, and nothing of a bag becomes markup."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest
from process_bags import N, cloud_cdr, content, on, write_bag

from radius_fps_ros.clouds import Cloud, decode_cloud, encode_cloud
from radius_fps_ros.clouds.bags import deserialize_cloud, serialize_cloud

# ---- the report ----


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for key, value in attributes if key in ("src", "href")]

    def handle_data(self, data):
        self.text.append(data)


def test_the_report_agrees_with_the_bag(done, page, tmp_path):
    bag = write_bag(tmp_path / "b<i>ag & co", frames=5, topics=("/top<script>alert(1)</script>$x_1$",))
    out = tmp_path / "out"
    done(bag, "-o", out, "--features")
    report = json.loads((out / "report.json").read_text())
    (topic,) = report["topics"]
    messages = on(bag, topic["name"])
    sampled = [decode_cloud(deserialize_cloud(cdr)) for _, cdr in on(out, f"{topic['name']}/sampled")]
    frames = report["frames"]
    assert report["counts"]["processed"] == topic["processed"] == len(sampled) == 5
    assert report["counts"]["written"] == len(content(out)) == 10
    assert topic["outputs"] == {f"{topic['name']}/sampled": 5, f"{topic['name']}/features": 5}
    assert frames["time"] == [time for time, _ in messages]
    assert frames["points_in"] == [300] * 5
    assert frames["samples"] == [len(cloud) for cloud in sampled] == [N] * 5
    for (_, cdr), cloud, radius in zip(messages, sampled, frames["coverage_radius"], strict=True):
        away = np.linalg.norm(decode_cloud(deserialize_cloud(cdr)).xyz[:, None] - cloud.xyz[None], axis=2)
        assert radius == pytest.approx(away.min(axis=1).max(), rel=1e-5)
    assert report["coverage_radius"]["max"] == max(frames["coverage_radius"])
    for name, stage in report["milliseconds"].items():
        assert stage["max"] == max(frames["milliseconds"][name])
        assert stage["min"] <= stage["p50"] <= stage["p90"] <= stage["p99"] <= stage["max"]
    assert list(report["milliseconds"]) == [
        "deserialize", "decode", "crop", "sample", "encode", "serialize", "upload", "voxelize", "backbone", "gather",
        "serialize_features", "write", "total",
    ]  # fmt: skip
    assert report["frames_per_second"] == pytest.approx(5 / report["seconds"])
    assert report["settings"]["n"] == N
    assert report["weights"] == "seeded random weights (seed 0), not trained"

    seen = _Page()
    seen.feed((out / "report.html").read_text())
    text = " ".join(seen.text)
    assert topic["name"] in text
    assert "b<i>ag & co" in text
    assert "script" not in seen.tags
    assert "i" in seen.tags  # the page's own keys, not the bag's name
    assert seen.tags.count("img") == 3
    assert seen.tags.count("svg") == 4 + len(report["milliseconds"])
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in seen.links)
    for sentence in report["warnings"]:
        assert sentence in text


def test_infinite_coverage_is_null(done, page, tmp_path):
    records = np.zeros(3, [("x", "<f4"), ("y", "<f4"), ("z", "<f4")])
    records["x"] = 0, 3e38, -3e38
    far = serialize_cloud(encode_cloud(Cloud.of_records(records)), deserialize_cloud(cloud_cdr(0)).header)
    bag = write_bag(tmp_path / "bag", frames=2, topics=("/top",), replaced={0: far, 1: far})
    assert "coverage radius p50 infinite" in done(bag, "-o", tmp_path / "out", "--n", 1)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["frames"]["coverage_radius"] == [None, None]
    assert (tmp_path / "out" / "report.html").exists()
