"""``stowplan run``: run an unchanged program through a pool."""

from __future__ import annotations

from pathlib import Path

import click

from ._options import (
    SCRIPT_CONTEXT,
    OutputFile,
    arguments_argument,
    module_option,
    script_argument,
    step_function_option,
)


@click.command(context_settings=SCRIPT_CONTEXT, epilog="Example: stowplan run train.py --epochs 20")
@step_function_option
@click.option("--stats", type=OutputFile(), help="Write the statistics there, too, as JSON.")
@click.option(
    "--json", "as_json", is_flag=True, help="Say it at the end of standard output, as one line of JSON."
)
@click.option("--auto-step", is_flag=True, help="Find NumPy's steps, too, and serve them from plans.")
@module_option
@script_argument
@arguments_argument
def run(
    step_function: str | None,
    stats: Path | None,
    as_json: bool,
    auto_step: bool,
    module: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT with its ARGUMENTS as python does, its arrays served by a pool.

    SCRIPT is what python takes: a file, a folder or archive with a __main__.py, or - for standard input; with -m, a
    module. All that follows it is the script's.

    The pools serve NumPy's arrays and, if the script imports CuPy, CuPy's, in all threads. NumPy's large
    arrays come from the pool's heap, and from plans in steps that are marked (stowplan.step(),
    --step-function) or, with --auto-step, found; CuPy's steps are found. If the
    script gives CuPy an allocator, it serves the requests that are not planned. If it imports Chainer, Chainer
    is made to work with the installed versions. At the end a line on standard error has the counts of each
    pool. The exit status is the script's.
    """
    from ..scripts import Script
    from ..scripts.serving import run_served

    program = Script(script, module=module)
    status = run_served(program, arguments, step_function, stats=stats, as_json=as_json, auto_step=auto_step)
    raise click.exceptions.Exit(status)
