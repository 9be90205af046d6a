"""``stowplan run``: a script, unchanged, through the pool."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..units import human_bytes
from ._options import (
    SCRIPT_CONTEXT,
    OutputFile,
    arguments_argument,
    script_argument,
    step_function_option,
)

if TYPE_CHECKING:
    from ..allocator import Stats
    from ..allocator.pool import Pool

_NEVER_PLANNED = ("no_plan", "outside", "thread", "interrupted")
"""Reasons of requests that came before there was a plan, or outside of what plans are for."""


@click.command(context_settings=SCRIPT_CONTEXT, epilog="Example: stowplan run train.py --epochs 20")
@step_function_option
@click.option("--stats", type=OutputFile(), help="Write the statistics there, too, as JSON.")
@script_argument
@arguments_argument
def run(step_function: str | None, stats: Path | None, script: str, arguments: tuple[str, ...]) -> None:
    """Run SCRIPT with its ARGUMENTS as python does, its arrays served by a pool that finds its steps.

    NumPy's arrays in the main thread; CuPy's as well where the script imports cupy or chainer and there is a device.
    Where it imports chainer, that is made to work with the installed versions first. Statistics go to standard error at
    the end. The exit status is the script's.
    """
    from ..script import Script

    read = Script.read(script)
    with pools(read.imports) as serving:
        if step_function is not None:
            read.mark(step_function)
        faults = -minor_faults()
        status = read.run(arguments)
        faults += minor_faults()
        figures = {name: as_figures(pool.stats) for name, pool in serving.items()}
    for name, served in figures.items():
        click.echo(as_text(name, served), err=True)
    click.echo(f"  minor page faults while the script ran: {faults:,}", err=True)
    if stats is not None:
        stats.write_text(json.dumps({**figures, "minor_faults": faults, "exit_status": status}) + "\n")
    raise click.exceptions.Exit(status)


@contextmanager
def pools(imports: frozenset[str]) -> Iterator[dict[str, Pool]]:
    """Serve this thread, and CuPy where a script that imports these modules may use it; yield the pools by name."""
    from contextlib import ExitStack

    from ..allocator import NumpyPool
    from ..marks import steps_go_to

    prepare(imports)
    serving: dict[str, Pool] = {"numpy": NumpyPool(auto_step=True)}
    if imports & {"cupy", "chainer"} and has_device():
        from ..allocator import CupyPool

        serving["cupy"] = CupyPool(auto_step=True)
    with ExitStack() as stack:
        for pool in serving.values():
            stack.enter_context(pool.serving())
            stack.enter_context(steps_go_to(pool.step))
        yield serving


def prepare(imports: frozenset[str]) -> None:
    """Have Chainer imported, mended, where a script imports it."""
    if "chainer" in imports:
        from ..compat import enable_chainer

        enable_chainer()


def minor_faults() -> int:
    """Return the minor page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def has_device() -> bool:
    """Whether there is CuPy and a device for it."""
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # no CuPy, no CUDA, no driver: each has an error of its own
        return False


def as_figures(stats: Stats) -> dict[str, Any]:
    """Return what is to be said of a pool."""
    planned = stats.replayed + stats.upstream + stats.guests
    planned -= sum(stats.reasons.get(name, 0) for name in _NEVER_PLANNED)
    return {
        "replayed": stats.replayed,
        "guests": stats.guests,
        "upstream": stats.upstream,
        "reasons": stats.reasons,
        "with_a_plan": planned,
        "share": stats.replayed / planned if planned else 0.0,
        "steps": stats.steps,
        "plans": stats.plans,
        "arena_bytes": stats.arena_bytes,
        "lower_bound": stats.lower_bound,
        "peak_live_bytes": stats.peak_live_bytes,
        "peak_reserved_bytes": stats.peak_reserved_bytes,
    }


def as_text(name: str, figures: dict[str, Any]) -> str:
    """Return the figures for people."""
    if not figures["with_a_plan"]:
        return f"stowplan: {name}: no step was found in {figures['upstream'] + figures['guests']:,} requests"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in figures["reasons"].items())
    return (
        f"stowplan: {name}: {figures['steps']:,} steps; {figures['share']:.1%} of {figures['with_a_plan']:,} requests "
        f"served from the plan since there was one (not from a plan: {reasons or 'none'})\n"
        f"  arena {human_bytes(figures['arena_bytes'])}, lower bound {human_bytes(figures['lower_bound'])}; "
        f"most alive {human_bytes(figures['peak_live_bytes'])}, "
        f"most reserved {human_bytes(figures['peak_reserved_bytes'])}"
    )
