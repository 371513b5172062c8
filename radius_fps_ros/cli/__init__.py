"""The ``radius-fps`` command: one file per subcommand, loaded only when it is called."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import click

from .. import __version__
from ..errors import InputError, RadiusFpsError

COMMANDS = {
    "sample": "Downsample a cloud file by exact farthest point sampling.",
    "features": "Compute sparse voxel features of a cloud file.",
    "certify": "Certify the Hausdorff distance between two mesh files.",
    "process": "Run the whole pipeline over a bag, without ROS, and report.",
    "replay": "Publish the clouds of a bag on ROS 2.",
    "bench": "Run the benchmarks that this machine can run.",
}


BAD_INPUT = 2
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class _LazyGroup(click.Group):
    """Imports a subcommand's module only when it runs, so that ``--help`` and one command stay quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run; what the system refuses (a file, memory) is the caller's to mend, wherever it shows."""
        try:
            return super().invoke(ctx)
        except (OSError, MemoryError) as error:
            raise InputError(_sentence(error)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="radius-fps")
def cli() -> None:
    """Exact farthest point sampling, sparse voxel features and certified Hausdorff distances.

    Exit code: 0 done; 2 bad input; 70 a fault of this program; 130 interrupted by Ctrl-C. What else a command returns
    stands in its own help.
    """


class _Stream:
    """Standard output or error whose loss does not stop a command: the first failure is kept, what follows dropped."""

    def __init__(self, stream: TextIO) -> None:
        self.failure: OSError | None = None
        self._stream = stream
        if hasattr(stream, "reconfigure"):  # a file name need not be text, and is shown all the same
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, unless the stream has failed."""
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush, unless the stream has failed."""
        self._attempt(self._stream.flush)

    def _attempt(self, action: Callable[[], object]) -> None:
        if self.failure is not None:
            return
        try:
            action()
        except OSError as error:
            self.failure = error
            # What is still in the buffer goes nowhere; the interpreter would fail on it again when it ends.
            with suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


@contextmanager
def _lossy_streams() -> Iterator[Callable[[], OSError | None]]:
    """Let no closed or full stdout or stderr end a command; gives a function that tells why stdout failed.

    Click would end a closed stdout with 1, which is an answer of ``certify``, before the command gave its own.
    """
    before = sys.stdout, sys.stderr
    streams = [None if stream is None else _Stream(stream) for stream in before]

    def failure() -> OSError | None:
        out = streams[0]
        if out is None:
            return None
        out.flush()
        return out.failure

    sys.stdout, sys.stderr = streams  # type: ignore[assignment]
    try:
        yield failure
    finally:
        sys.stdout, sys.stderr = before


def main() -> None:
    """Run the command line; an error the user can cause is one sentence on stderr and exit code 2.

    A closed stdout (``| head``) changes no exit code; one that cannot be written for another reason is exit code 2.
    """
    with _lossy_streams() as stdout_failure:
        code = _run()
        failure = stdout_failure()
        if failure is not None and failure.errno != errno.EPIPE:
            click.echo(f"radius-fps: standard output cannot be written: {failure.strerror or failure}", err=True)
            code = code if code in (INTERNAL_ERROR, INTERRUPTED) else BAD_INPUT
    sys.exit(code)


def _run() -> int:
    """Run the command line and return its exit code.

    Click would end both a Ctrl-C and an unforeseen exception with 1, which is an answer of ``certify``.
    """
    try:
        return cli(standalone_mode=False) or 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except RadiusFpsError as error:
        click.echo(f"radius-fps: {error}", err=True)
        return BAD_INPUT
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("radius-fps: interrupted", err=True)
        return INTERRUPTED
    except Exception:
        traceback.print_exc()
        return INTERNAL_ERROR


def _sentence(error: OSError | MemoryError) -> str:
    reason = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError):
        return f"the memory is not enough: {reason}"
    if error.strerror is None or not isinstance(error.filename, (str, bytes)):
        return error.strerror or reason
    return f"{os.fsdecode(error.filename)}: {error.strerror}"
