"""``stowplan run``: run an unchanged script through a pool."""

from __future__ import annotations

import json
import resource
from dataclasses import asdict
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


@click.command(context_settings=SCRIPT_CONTEXT, epilog="Example: stowplan run train.py --epochs 20")
@step_function_option
@click.option("--stats", type=OutputFile(), help="Write the statistics there, too, as JSON.")
@script_argument
@arguments_argument
def run(step_function: str | None, stats: Path | None, script: str, arguments: tuple[str, ...]) -> None:
    """Run SCRIPT with its ARGUMENTS as python does, its arrays served by a pool that finds its steps.

    The pool serves NumPy's arrays in the main thread and, if the script imports CuPy, CuPy's in all threads. If the
    script gives CuPy an allocator, that one serves the requests that are not planned. If it imports Chainer, Chainer is
    first made to work with the installed versions. Statistics go to standard error at the end. The exit status is the
    script's.
    """
    from ..scripts import Script
    from ..scripts.auto_pools import pools

    read = Script.read(script)
    read.prepare()
    with pools() as serving:
        if step_function is not None:
            read.mark(step_function)
        faults = -_minor_faults()
        status = read.run(arguments)
        faults += _minor_faults()
        figures = {name: as_figures(pool.stats) for name, pool in serving.items()}
    asked = {name: served for name, served in figures.items() if served["requests"]}
    for name, served in (asked or figures).items():
        click.echo(_as_text(name, served), err=True)
    click.echo(f"  minor page faults while the script ran: {faults:,}", err=True)
    if stats is not None:
        stats.write_text(json.dumps({**figures, "minor_faults": faults, "exit_status": status}) + "\n")
    raise click.exceptions.Exit(status)


def _minor_faults() -> int:
    """Return the minor page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def as_figures(stats: Stats) -> dict[str, Any]:
    """Return what is to be said of a pool: all its counts, and the share of what a plan might have served."""
    from ..allocator.counts import REASONS

    planned = stats.requests - sum(n for name, n in stats.reasons.items() if not REASONS[name].had_plan)
    return {
        "requests": stats.requests,
        **asdict(stats),
        "with_a_plan": planned,
        "share": stats.replayed / planned if planned else 0.0,
    }


def _as_text(name: str, figures: dict[str, Any]) -> str:
    """Return these figures as the lines that are printed at the end."""
    if not figures["with_a_plan"]:
        return f"stowplan: {name}: no step was found in {figures['requests']:,} requests"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in figures["reasons"].items())
    return (
        f"stowplan: {name}: {figures['steps']:,} steps; {figures['share']:.1%} of {figures['with_a_plan']:,} requests "
        f"served from the plan since there was one (not from a plan: {reasons or 'none'})\n"
        f"  arena {human_bytes(figures['arena_bytes'])}, lower bound {human_bytes(figures['lower_bound'])}; "
        f"most alive {human_bytes(figures['peak_live_bytes'])}, "
        f"most reserved {human_bytes(figures['peak_reserved_bytes'])}"
    )
