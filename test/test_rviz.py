"""The RViz configuration shows the topics that the perception node has under its default name."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]


def test_it_shows_input_samples_and_features():
    config = yaml.safe_load((ROOT / "rviz" / "perception.rviz").read_text())["Visualization Manager"]
    displays = {display["Name"]: display for display in config["Displays"]}
    topics = {name: display["Topic"]["Value"] for name, display in displays.items() if "Topic" in display}
    node = "radius_fps_perception"
    assert topics == {"Input": "/points", "Samples": f"/{node}/sampled", "Features": f"/{node}/features"}
    source = "".join(file.read_text() for file in (ROOT / "radius_fps_ros" / "nodes").glob("*.py"))
    assert f'NODE_NAME = "{node}"' in source
    assert all(f'"~/{topic}"' in source for topic in ("sampled", "features"))
    assert displays["Samples"]["Size (Pixels)"] > displays["Input"]["Size (Pixels)"]
    assert displays["Input"]["Topic"]["Reliability Policy"] == "Best Effort", "matches every sensor driver"
    assert "Grid" in displays
    launch = (ROOT / "launch" / "bringup.launch.py").read_text()
    assert f'"frame", "{config["Global Options"]["Fixed Frame"]}"' in launch
