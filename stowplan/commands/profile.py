"""``stowplan profile``: what a script, unchanged, asks for in each of its steps, and where."""

from __future__ import annotations

from pathlib import Path

import click

from ._options import (
    SCRIPT_CONTEXT,
    OutputFile,
    arguments_argument,
    script_argument,
    step_function_option,
)
from .run import prepare


@click.command(
    context_settings=SCRIPT_CONTEXT,
    epilog="Example: stowplan profile -o step.profile train.py --epochs 2; stowplan show step.profile",
)
@step_function_option
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "gpu"]),
    default="auto",
    show_default=True,
    help="Whose requests: NumPy's (cpu), CuPy's (gpu), or CuPy's if there are any, else NumPy's (auto).",
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    help="Where the profile goes.  [default: SCRIPT's name, in this folder, with the suffix .profile]",
)
@click.option(
    "--small",
    type=click.IntRange(min=0),
    help="Requests below this many bytes are left out.  [default: 1033 of NumPy's, 0 of CuPy's]",
)
@click.option("--no-sites", is_flag=True, help="Do not note the call sites.")
@script_argument
@arguments_argument
def profile(
    step_function: str | None,
    device: str,
    output: Path | None,
    small: int | None,
    no_sites: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT with its ARGUMENTS as python does, find the step that it repeats, and write that step's profile.

    NumPy's and CuPy's arrays in the main thread are watched, and served as ever. Steps are found, or marked: by
    --step-function, or with stowplan.step() in the script. Each block has its call site: the innermost line of the
    script's own code, outside of Python's library and installed packages; and the link and function of Chainer's that
    asked. Ctrl-C ends the script and keeps what was seen. Where no step repeats, all requests are taken for one step.
    The exit status is the script's; or 1, and nothing is written, where --device gpu finds no request of CuPy's.
    """
    from ..errors import ProfileError
    from ..recording import recording
    from ..script import Script

    read = Script.read(script)
    prepare(read.imports)
    with recording(device, sites=not no_sites, small=small) as watching:
        if step_function is not None:
            read.mark(step_function)
        status = read.run(arguments)
    seen = watching.seen()
    if seen is None:
        click.echo(f"stowplan: {script} asked for no memory by CuPy; nothing was written", err=True)
        raise click.exceptions.Exit(status or 1)
    whose, recorder = seen
    try:
        step, what = recorder.profile(), "the step that it repeats"
    except ProfileError:
        step, what = recorder.whole(), "all of it, for no step was repeated"
    path = Path(Path(script).stem + ".profile") if output is None else output
    step.save(path)
    click.echo(
        f"stowplan: {whose}: {what}: {len(step):,} blocks, live peak {step.live_peak:,} bytes; written to {path}",
        err=True,
    )
    raise click.exceptions.Exit(status)
