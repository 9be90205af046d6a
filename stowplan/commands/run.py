"""``stowplan run``: run an unchanged program through a pool."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ._options import (
    SCRIPT_CONTEXT,
    OutputFile,
    arguments_argument,
    module_option,
    script_argument,
    step_function_option,
)

if TYPE_CHECKING:
    from ..allocator import Stats


@click.command(context_settings=SCRIPT_CONTEXT, epilog="Example: stowplan run train.py --epochs 20")
@step_function_option
@click.option("--stats", type=OutputFile(), help="Write the statistics there, too, as JSON.")
@click.option(
    "--json", "as_json", is_flag=True, help="Say it at the end of standard output, as one line of JSON."
)
@click.option(
    "--plans",
    metavar="DIRECTORY",
    help="Look for plans there before they are packed, and keep them there for other runs.",
)
@module_option
@script_argument
@arguments_argument
def run(
    step_function: str | None,
    stats: Path | None,
    as_json: bool,
    plans: str | None,
    module: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT with its ARGUMENTS as python does, its arrays served by a pool that finds its steps.

    SCRIPT is what python takes: a file, a folder or archive with a __main__.py, or - for standard input; with -m, a
    module. All that follows it is the script's.

    The pools serve NumPy's arrays and, if the script imports CuPy, CuPy's, in all threads. If the
    script gives CuPy an allocator, that one serves the requests that are not planned. If it imports Chainer, Chainer
    is made to work with the installed versions. At the end two lines on standard error say whether it helped, why, and
    what to do. The exit status is the script's.
    """
    from ..scripts import Script
    from ..scripts.auto_pools import pools
    from ..scripts.step_usage import StepUsage
    from ..scripts.verdict import judge, text

    program = Script(script, module=module)
    with pools(plans) as serving:
        numpy = serving["numpy"]
        with StepUsage(lambda: numpy.stats) as usage:
            faults = -_minor_faults()
            status = program.run(arguments, step_function)
            faults += _minor_faults()
        figures = {name: as_figures(pool.stats) for name, pool in serving.items()}
    costs = {"numpy": (usage.before, usage.after)}
    verdicts = {name: judge(served, *costs.get(name, ())) for name, served in figures.items()}
    whole = {
        **{name: {**served, "verdict": verdicts[name].as_dict()} for name, served in figures.items()},
        "minor_faults": faults,
        "exit_status": status,
    }
    if as_json:
        click.echo(json.dumps(whole))
    else:
        asked = {name: served for name, served in figures.items() if served["requests"]}
        for name, served in (asked or figures).items():
            click.echo(text(name, served, verdicts[name]), err=True)
    if stats is not None:
        stats.write_text(json.dumps(whole) + "\n")
    raise click.exceptions.Exit(status)


def _minor_faults() -> int:
    """Return the minor page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def as_figures(stats: Stats) -> dict[str, Any]:
    """Return what is to be said of a pool: all its counts, and the share of what a plan might have served."""
    from dataclasses import asdict

    from ..allocator.counts import REASONS

    planned = stats.requests - sum(n for name, n in stats.reasons.items() if not REASONS[name].had_plan)
    return {
        "requests": stats.requests,
        **asdict(stats),
        "with_a_plan": planned,
        "share": stats.replayed / planned if planned else 0.0,
    }
