"""How the command line ends: no fault and no interruption may pass for a command's answer."""

import sys

import click
import pytest

from radius_fps_ros import cli
from radius_fps_ros.errors import InputError


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
