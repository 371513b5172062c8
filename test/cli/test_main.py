"""How the command line ends: no fault and no interruption may pass for a command's answer."""

import errno
import importlib
import os
import subprocess
import sys

import click
import pytest
from click.types import FloatParamType

from radius_fps_ros import cli
from radius_fps_ros.cli.options import FiniteFloat
from radius_fps_ros.clouds import read_cloud
from radius_fps_ros.clouds.bags import open_bag
from radius_fps_ros.errors import InputError
from radius_fps_ros.hausdorff import load_mesh


@pytest.fixture
def run(monkeypatch, capsys):
    """Run ``radius-fps sample`` with this body in place of its own: (exit code, stdout, stderr)."""

    def run(body, *arguments):
        monkeypatch.setattr(cli._LazyGroup, "get_command", lambda self, ctx, name: click.Command(name, callback=body))
        monkeypatch.setattr(sys, "argv", ["radius-fps", "sample", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return run


def raiser(error):
    def body():
        raise error

    return body


def test_done_is_0_and_a_command_may_end_with_its_own_code(run):
    assert run(lambda: click.echo("text")) == (0, "text\n", "")
    assert run(lambda: sys.exit(3))[0] == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_is_130(run, error):
    code, out, err = run(raiser(error))
    assert (code, out) == (130, "")
    assert err.strip() == "radius-fps: interrupted"


def test_an_error_of_the_caller_is_one_sentence_and_2(run):
    assert run(raiser(InputError("n is 0; allowed are 1 and above"))) == (
        2,
        "",
        "radius-fps: n is 0; allowed are 1 and above\n",
    )


def test_wrong_usage_is_2(run):
    code, _, err = run(lambda: None, "--frobnicate")
    assert code == 2
    assert "No such option" in err
    assert "Usage: " in err


def test_a_fault_of_the_program_is_a_traceback_and_70(run):
    code, out, err = run(raiser(RuntimeError("never foreseen")))
    assert (code, out) == (70, "")
    assert "Traceback" in err
    assert err.endswith("RuntimeError: never foreseen\n")


def test_help_names_the_exit_codes(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["radius-fps", "--help"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Exit code: 0 done; 2 bad input; 70 a fault of this program; 130 interrupted by Ctrl-C" in text


def in_a_process(body, stdout):
    """Run ``radius-fps sample`` with this source as its body, in an interpreter of its own: (exit code, stderr)."""
    code = f"import sys, click; from radius_fps_ros import cli\ndef body():\n    {body}\n" + (
        "cli._LazyGroup.get_command = lambda self, ctx, name: click.Command(name, callback=body)\n"
        "sys.argv = ['radius-fps', 'sample']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=stdout, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize("printing", ["click.echo('text')", "print('text')", "print('text' * 100000)"])
@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_closed_stdout_changes_no_exit_code(printing, code):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:
        assert in_a_process(f"{printing}; click.echo('more'); sys.exit({code})", closed) == (code, "")


@pytest.mark.parametrize("body", ["click.echo('text')", "print('text')", "print('text'); sys.exit(1)"])
def test_a_full_stdout_is_one_sentence_and_2(body):
    with open("/dev/full", "w") as full:
        code, err = in_a_process(body, full)
    assert (code, err) == (2, "radius-fps: standard output cannot be written: No space left on device\n")


def test_a_name_that_is_not_text_is_printed():
    code, err = in_a_process(r"click.echo('bag\udcff'); click.echo('bag\udcff', err=True)", subprocess.DEVNULL)
    assert (code, err) == (0, "bag\\udcff\n")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "d/x.pcd"), "d/x.pcd: Permission denied"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "Broken pipe"),
        (MemoryError("Unable to allocate\n9 TiB"), "the memory is not enough: Unable to allocate 9 TiB"),
        (MemoryError(), "the memory is not enough: MemoryError"),
    ],
)
def test_what_the_system_refuses_is_one_sentence_and_2(run, error, sentence):
    assert run(raiser(error)) == (2, "", f"radius-fps: {sentence}\n")


NUMBERS = {
    "certify": ("--tolerance", "--absolute-tolerance", "--threshold", "--time-limit", "--memory-limit"),
    "process": ("--range-min", "--range-max", "--save-every", "--roi-min", "--roi-max"),
    "replay": ("--rate", "--wait"),
}


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400"])
@pytest.mark.parametrize(("command", "option"), [(name, option) for name in NUMBERS for option in NUMBERS[name]])
def test_no_option_takes_a_number_that_is_not_finite(command, option, value, monkeypatch, capsys):
    values = [value, "0", "0"] if "roi" in option else [value]
    arguments = {"certify": ["a", "b"], "process": ["bag", "-o", "out"], "replay": ["bag"]}[command]
    monkeypatch.setattr(sys, "argv", ["radius-fps", command, *arguments, option, *values])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"Error: Invalid value for '{option}': ")
    assert error.endswith("is not a finite number.") or "is not in the range" in error


def test_every_float_option_refuses_nan():
    for name in cli.COMMANDS:
        command = cli.cli.get_command(click.Context(cli.cli), name)
        for parameter in command.params:
            if isinstance(parameter.type, FloatParamType):
                assert isinstance(parameter.type, FiniteFloat), f"{name} {parameter.opts}"


@pytest.fixture
def forbidden(tmp_path):
    """A folder that may not be looked into."""
    folder, user = tmp_path / "forbidden", os.geteuid()
    folder.mkdir()
    folder.chmod(0)
    for reader in ("plyfile", "rosbags.rosbag2", "trimesh"):
        importlib.import_module(
            reader
        )  # loaded when first used: by then the interpreter's folder may be forbidden, too
    if user == 0:
        os.seteuid(65534)  # root may look into every folder
    yield folder
    os.seteuid(user)
    folder.chmod(0o700)


@pytest.mark.parametrize("read", [read_cloud, load_mesh, lambda path: open_bag(path).__enter__()])
def test_a_file_in_a_forbidden_folder_is_one_sentence(read, forbidden):
    with pytest.raises(InputError, match="Permission denied"):
        read(forbidden / "a.ply")


@pytest.mark.parametrize("place", [("nowhere", "a.npy"), ("folder.npy",)])
@pytest.mark.parametrize(
    "arguments",
    [
        ("sample", "gone.pcd", "--n", "1", "-o"),
        ("features", "gone.pcd", "-o"),
        ("features", "gone.pcd", "--picture"),
        ("certify", "gone.ply", "gone.ply", "--picture"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(arguments, place, monkeypatch, capsys, tmp_path):
    (tmp_path / "folder.npy").mkdir()
    monkeypatch.setattr(sys, "argv", ["radius-fps", *arguments, str(tmp_path.joinpath(*place))])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert f"{place[-1]} cannot be written: " in error
    assert error.count("\n") == 1
