"""The ``radius-fps`` command: one file per subcommand, loaded only when it is called."""

from __future__ import annotations

import importlib
import sys
import traceback

import click

from .. import __version__
from ..errors import RadiusFpsError

COMMANDS = {
    "sample": "Downsample a cloud file by exact farthest point sampling.",
    "features": "Compute sparse voxel features of a cloud file.",
    "certify": "Certify the Hausdorff distance between two mesh files.",
    "process": "Run the whole pipeline over a bag, without ROS, and report.",
    "replay": "Publish the clouds of a bag on ROS 2.",
    "bench": "Run the benchmarks that this machine can run.",
}


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


def main() -> None:
    """Run the command line; an error the user can cause is one sentence on stderr and exit code 2.

    Click would end both a Ctrl-C and an unforeseen exception with 1, which is an answer of ``certify``.
    """
    try:
        sys.exit(cli(standalone_mode=False) or 0)
    except RadiusFpsError as error:
        click.echo(f"radius-fps: {error}", err=True)
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("radius-fps: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except Exception:
        traceback.print_exc()
        sys.exit(INTERNAL_ERROR)
