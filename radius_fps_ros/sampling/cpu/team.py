"""Threads that share the steps of one compiled loop.

Sampling is a chain of steps of a few microseconds, too short to hand to a thread pool. So the leader and its helpers
stay inside compiled code for the whole chain: each step is cut into chunks, and whoever is free takes the next one from
an atomic counter. Nobody waits for a helper that has not begun: on a busy machine the leader does more of the chunks
itself, all of them at worst.
"""

# mypy: disallow-untyped-defs=False, warn-return-any=False
from __future__ import annotations

import platform
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from .parallel import submit

CHUNKS = 4  # a thread and step: enough to even out, few enough that taking them costs little
LINE = 8  # int64 a cache line, so that no two counters share one
STOP = 0
FIRST_COUNTER = LINE  # then, for each thread, the next of its own chunks and the number of chunks it has done
OF_A_THREAD = 2 * LINE
CLOSED = 1 << 40  # a counter with no chunk left
SPINS = 4096  # some 50 microseconds: longer than a step, shorter than a time slice

_ON_X86 = platform.machine() == "x86_64"
_yield_processor = types.ExternalFunction("sched_yield", types.int32())


def new_team(threads: int) -> np.ndarray:
    """The counters of a team of ``threads``."""
    team = np.zeros(FIRST_COUNTER + threads * OF_A_THREAD, np.int64)
    team[FIRST_COUNTER::OF_A_THREAD] = CLOSED
    return team


def run_team(lead: Callable[..., Any], help_lead: Callable[..., None], threads: int, *args: Any) -> Any:
    """Return ``lead(team, *args)`` while ``help_lead(team, k, *args)`` runs in ``threads - 1`` others.

    ``help_lead`` may touch ``args`` only within chunks: a helper that the system has put aside is not waited for, and
    sees the end later.
    """
    if threads > 1 and not getattr(help_lead, "signatures", True):
        _compile_helper(help_lead, *args)
    team = new_team(threads)
    helpers: list[Future[Any]] = []
    try:  # whatever happens from here on, an interruption too, the helpers must see the end
        for k in range(1, threads):
            helpers.append(submit(threads - 1, help_lead, team, k, *args))
        return lead(team, *args)
    finally:
        team[STOP] = 1
        for helper in helpers:
            if not helper.cancel() and helper.done():
                helper.result()  # raises what it raised


def _compile_helper(help_lead: Callable[..., None], *args: Any) -> None:
    """Call ``help_lead`` for a run that is over: a helper would compile beside the run, and for longer."""
    team = new_team(1)
    team[STOP] = 1
    help_lead(team, 0, *args)


@njit
def team_size(team: np.ndarray) -> int:
    """Threads of a team."""
    return (team.shape[0] - FIRST_COUNTER) // OF_A_THREAD


@njit
def open_step(team: np.ndarray) -> None:
    """Offer all chunks of the next step. What helpers read must be written before."""
    for k in range(team_size(team)):
        _store(team, FIRST_COUNTER + k * OF_A_THREAD, 0)


@njit
def take_chunk(team: np.ndarray, k: int) -> int:
    """A chunk of the step for thread ``k``, its own first, then those others have left; -1 when none is."""
    threads = team_size(team)
    for offset in range(threads):
        owner = (k + offset) % threads
        counter = FIRST_COUNTER + owner * OF_A_THREAD
        if _load(team, counter) < CHUNKS:
            chunk = _add(team, counter, 1)
            if chunk < CHUNKS:
                return owner * CHUNKS + chunk
    return -1


@njit
def chunk_range(team: np.ndarray, chunk: int, n: int) -> tuple[int, int]:
    """Which of ``n`` items a chunk is: begin and end."""
    chunks = team_size(team) * CHUNKS
    return chunk * n // chunks, (chunk + 1) * n // chunks


@njit
def finish_chunk(team: np.ndarray, k: int) -> None:
    """Tell the leader that thread ``k`` has done a chunk. What the leader reads must be written before."""
    _add(team, FIRST_COUNTER + k * OF_A_THREAD + LINE, 1)


@njit
def wait_for_step(team: np.ndarray, step: int) -> None:
    """Wait until all chunks of the first ``step`` steps are done."""
    spins = 0
    while _chunks_done(team) < step * team_size(team) * CHUNKS:
        spins = relax(spins)


@njit
def _chunks_done(team: np.ndarray) -> int:
    done = 0
    for k in range(team_size(team)):
        done += _load(team, FIRST_COUNTER + k * OF_A_THREAD + LINE)
    return done


@njit
def stopped(team: np.ndarray) -> bool:
    """Whether the leader has come to its end."""
    return _load(team, STOP) != 0


@njit
def relax(spins: int) -> int:
    """Let a moment pass while waiting; gives the core to others when it takes long. Returns the next ``spins``."""
    if spins < SPINS:
        _pause()
    else:
        _yield_processor()
    return spins + 1


def _element(context: Any, builder: ir.IRBuilder, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


@intrinsic
def _load(typingctx: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        at = _element(context, builder, signature.args[0], args[0], args[1])
        return builder.load_atomic(at, "acquire", 8)

    return types.int64(array, types.int64), generate


@intrinsic
def _store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        at = _element(context, builder, signature.args[0], args[0], args[1])
        builder.store_atomic(args[2], at, "release", 8)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


@intrinsic
def _add(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        at = _element(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", at, args[2], "acq_rel")

    return types.int64(array, types.int64, types.int64), generate


@intrinsic
def _pause(typingctx: Any) -> Any:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        if _ON_X86:
            nothing = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, nothing, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), generate
