"""What the tests of ``radius-fps process`` share."""

import sys

import pytest
from process_bags import PLUGINS, N, write_bag

from radius_fps_ros.cli import main


@pytest.fixture
def page():
    """Asked for by tests of the report's page, which takes a second to draw; the others do without."""


@pytest.fixture
def process(request, monkeypatch, capsys):
    """Run the command inside this process: (exit code, stdout, stderr)."""
    if "page" not in request.fixturenames:
        monkeypatch.setattr("radius_fps_ros.offline.page.write_page", lambda *arguments: "")

    def process(*arguments):
        given = ["radius-fps", "process", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", given if "--n" in given or "--help" in given else [*given, "--n", str(N)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return process


@pytest.fixture
def done(process):
    """The stdout of a run that must succeed; nothing may stand on stderr."""

    def done(*arguments):
        code, out, err = process(*arguments)
        assert (code, err) == (0, "")
        return out

    return done


@pytest.fixture
def refused(process):
    """The one line on stderr with which the command ends; exit code 2, nothing on stdout."""

    def refused(*arguments):
        code, out, err = process(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("radius-fps: ")
        assert err.count("\n") == 1
        return err

    return refused


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bags")
    return {storage: write_bag(folder / f"a {storage} drive", storage) for storage in PLUGINS}


@pytest.fixture(params=PLUGINS)
def storage(request):
    return request.param


@pytest.fixture
def bag(bags, storage):
    return bags[storage]
