"""``radius-fps certify``: an interval that contains the Hausdorff distance of two mesh files."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ..errors import InputError
from ..hausdorff import Certificate, Progress, Status, certify_hausdorff, prepare_mesh, warm_up
from ..hausdorff.rounding import printed_above, printed_interval
from .interrupts import interrupt_seen, signals_as_ctrl_c
from .options import FINITE, check_place

EXIT_CODES = {Status.CONVERGED: 0, Status.PROVEN_BELOW: 0, Status.PROVEN_ABOVE: 1}
LIMIT_REACHED = 3


@click.command(
    epilog="Example: radius-fps certify scan.ply map.ply --threshold 0.05 --picture worst.png",
)
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option(
    "--tolerance",
    type=FINITE,
    default=1e-6,
    show_default=True,
    help="Width of the interval, as a part of A's diagonal.",
)
@click.option(
    "--absolute-tolerance", type=FINITE, metavar="M", help="Width in the meshes' unit, in place of --tolerance."
)
@click.option("--symmetric", is_flag=True, help="The larger of both directions, not from A to B only.")
@click.option("--threshold", type=FINITE, metavar="M", help="Stop once the distance is proven below or above this.")
@click.option("--time-limit", type=FINITE, metavar="S", help="Seconds.")
@click.option("--memory-limit", type=FINITE, metavar="MB", help="Memory for the search, in 10^6 bytes.")
@click.option("--backend", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--picture", type=click.Path(path_type=Path), metavar="PNG", help="Draw both meshes and the witness.")
def command(
    a: Path,
    b: Path,
    tolerance: float,
    absolute_tolerance: float | None,
    symmetric: bool,
    threshold: float | None,
    time_limit: float | None,
    memory_limit: float | None,
    backend: str,
    as_json: bool,
    picture: Path | None,
) -> None:
    """Enclose the Hausdorff distance from mesh A to mesh B (.ply .obj .stl .off .glb).

    That is how far the point of A that is farthest from B lies from B. The interval printed contains it as a proof,
    rounding included; the witness is a point that far away.

    Exit code: 0 the interval is as narrow as asked, or the distance is proven at most --threshold; 1 it is proven
    above --threshold; 2 bad input; 3 a limit came first (the interval is valid); 70 a fault of this program;
    130 interrupted by Ctrl-C or SIGTERM.
    """
    if picture is not None:
        from .certify_picture import check_format

        check_place(picture)
        check_format(picture)
    with signals_as_ctrl_c(), interrupt_seen() as interrupted:
        meshes = prepare_mesh(a), prepare_mesh(b)
        warm_up(backend)  # compiling is part of neither the time limit nor the time that is printed
        with _progress_line(interrupted) as progress:
            certificate = certify_hausdorff(
                *meshes,
                tolerance=tolerance,
                absolute_tolerance=absolute_tolerance,
                symmetric=symmetric,
                threshold=threshold,
                time_limit=time_limit,
                memory_limit=None if memory_limit is None else _bytes(memory_limit),
                backend=backend,
                progress=progress,
            )
    if as_json:
        report = {"a": str(a), "b": str(b), "symmetric": symmetric, "threshold": threshold, **certificate.to_dict()}
        click.echo(json.dumps(report, indent=2))
    else:
        _print(certificate, symmetric, threshold)
    if picture is not None:
        from .certify_picture import draw

        draw(picture, *meshes, certificate, (a.name, b.name))
    sys.exit(EXIT_CODES.get(certificate.status, LIMIT_REACHED))


def _bytes(megabytes: float) -> int:
    if not (math.isfinite(megabytes * 1e6) and megabytes * 1e6 >= 1):
        raise InputError(f"--memory-limit must be a finite number of MB, at least 1e-6 (a byte), not {megabytes:g}")
    return int(megabytes * 1e6)


def _print(c: Certificate, symmetric: bool, threshold: float | None) -> None:
    click.echo(f"{'symmetric ' if symmetric else ''}distance in {printed_interval(c.lower, c.upper)}  {c.status.value}")
    click.echo(f"{c.status.meaning(threshold)}; gap {printed_above(c.relative_gap, 2)} of A's diagonal")
    witness, nearest = (", ".join(f"{x:.9g}" for x in point) for point in (c.witness_a, c.witness_b))
    on, other = ("A", "B") if c.direction == "a_to_b" else ("B", "A")
    click.echo(f"witness on {on}: ({witness}); nearest on {other}: ({nearest})")
    click.echo(f"{c.triangles} triangles, {c.milliseconds:.1f} ms, {c.backend}")


@contextmanager
def _progress_line(interrupted: Callable[[], bool]) -> Iterator[Callable[[Progress], bool | None]]:
    """A line on stderr that shows the interval closing, when someone watches it."""
    if not sys.stderr.isatty():
        yield lambda state: not interrupted()
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:

        def show(state: Progress) -> bool:
            interval = printed_interval(state.lower, state.upper, 9)
            open_now = f"{state.surviving:,} triangles open"
            live.update(Text(f"{interval}  {open_now}  {state.elapsed:.1f} s"), refresh=True)
            return not interrupted()

        yield show
