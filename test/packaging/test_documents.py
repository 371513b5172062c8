"""What the documents point to exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "benchmarks" / "NOTES.md", *sorted((ROOT / "docs").glob("*.md"))]
TESTS = "\n".join(path.read_text() for path in (ROOT / "test").rglob("test_*.py"))


def test_the_manifest_names_every_ros_package_that_is_imported():
    manifest = (ROOT / "package.xml").read_text()
    sources = [*(ROOT / "radius_fps_ros" / "nodes").glob("*.py"), *(ROOT / "launch").glob("*.py")]
    found = re.findall(r"^\s*(?:from|import) (\w+)", "\n".join(path.read_text() for path in sources), re.MULTILINE)
    ros = {name for name in found if re.fullmatch(r"rclpy|launch\w*|ament_\w+|\w+_(?:msgs|interfaces)", name)}
    assert len(ros) > 10
    assert [name for name in sorted(ros) if f"depend>{name}<" not in manifest] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text())
    local = [link for link in links if not link.startswith(("http://", "https://"))]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_contributing_names_files_and_tests_that_exist():
    quoted = re.findall(r"`([^`\n]+)`", (ROOT / "docs" / "contributing.md").read_text())
    paths = [name for name in quoted if re.fullmatch(r"\.?\w[\w./]*/[\w./]+", name)]
    assert len(paths) > 30
    assert [name for name in paths if not (ROOT / name).exists()] == []
    tests = [name for name in quoted if re.fullmatch(r"test_\w+", name)]
    assert [name for name in tests if f"def {name}(" not in TESTS] == []
    assert len(tests) > 3


def test_contributing_names_functions_where_they_are():
    text = (ROOT / "docs" / "contributing.md").read_text()
    pairs = re.findall(r"`(\w+)`(?: of| in)\s+`(radius_fps_ros/[\w/]+\.\w+)`", text)
    assert len(pairs) > 8
    assert [pair for pair in pairs if pair[0] not in (ROOT / pair[1]).read_text()] == []
