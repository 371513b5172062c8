"""The measured tables of the documentation are what benchmarks/results gives."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "update_tables.py"


@pytest.fixture
def copy(tmp_path):
    """A copy of the documentation and the results, and a call of the tool in it: (exit code, stdout + stderr)."""
    for name in ("README.md", "docs", "tools", "benchmarks/results"):
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, tmp_path / "tools" / "update_tables.py", *arguments], capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    run.folder = tmp_path
    return run


def test_the_documentation_has_the_figures_of_the_results(copy):
    assert copy("--check") == (0, "the tables are as the results give them\n")


def test_every_table_stands_somewhere():
    spec = importlib.util.spec_from_file_location("update_tables", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    texts = [path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    assert {name for text in texts for _, name, _ in tool.PLACE.findall(text)} == set(tool.TABLES)


def test_a_new_result_is_noticed_and_written(copy):
    path = copy.folder / "benchmarks" / "results" / "fps_cuda.json"
    results = json.loads(path.read_text())
    for row in results["rows"]:
        row["ms"] = 123.0
        if row.get("times_faster_than_brute"):
            row["times_faster_than_brute"] = 77.0
    path.write_text(json.dumps(results))
    code, text = copy("--check")
    assert code == 1
    assert text.startswith("README.md, docs/measurements.md: other figures than benchmarks/results")
    assert copy() == (0, "tables written to README.md, docs/measurements.md\n")
    assert "| 123 / 123 ms, 77 / 77 times faster" in (copy.folder / "README.md").read_text()
    assert copy("--check")[0] == 0


def test_priority_load_and_remark_stand_beside_the_figures(copy):
    results = copy.folder / "benchmarks" / "results"
    path = results / "hausdorff_cpu.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"realtime_priority": 0, "load_before": 7.0}))
    path = results / "fps_cpu.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"realtime_priority": 7, "load_before": 7.0}))
    path = results / "fps_cuda.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"remark": "on another device"}))
    assert copy()[0] == 0
    text = (copy.folder / "docs" / "measurements.md").read_text()
    assert ": `python benchmarks/hausdorff_cpu.py --runs 5` (other work kept the machine busy, load 7.0)\n" in text
    assert "--runs 31` (other work held off by real-time priority, load 7.0)\n" in text
    assert "`chrt -f 7 python benchmarks/fps_cpu.py" in text
    assert "`python benchmarks/fps_cuda.py` (on another device)\n" in text


def test_a_figure_changed_by_hand_is_noticed(copy):
    readme = copy.folder / "README.md"
    text = readme.read_text()
    readme.write_text(text.replace("600 of 600", "601 of 601"))
    assert copy("--check")[0] == 1
    copy()
    assert readme.read_text() == text


@pytest.mark.parametrize(
    ("file", "change", "sentence"),
    [
        (
            "README.md",
            ("table: summary", "table: nothing"),
            "there is no table 'nothing'; allowed are summary, fps_cpu",
        ),
        ("benchmarks/results/fps_cpu.json", ("street 120,000", "street"), "0 rows of the results have"),
    ],
)
def test_what_cannot_be_written_is_said(copy, file, change, sentence):
    path = copy.folder / file
    path.write_text(path.read_text().replace(*change))
    code, text = copy()
    assert code == 1
    assert sentence in text
