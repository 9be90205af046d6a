"""``stowplan convert``: read another tool's trace, write a plan for another tool's viewer."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ._options import OutputFile, alignment_option, json_option, solver_option

# `stowplan.profiler.formats.READ` and `WRITTEN`, which to import takes longer than to ask for help.
READ = ("profile", "minimalloc", "rmm", "cupy", "torch")
WRITTEN = ("profile", "minimalloc", "torch", "chrome")


@click.command(epilog="Example: stowplan convert snapshot.pickle step.profile")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=OutputFile())
@click.option("--from", "read_as", type=click.Choice(READ), help="What SOURCE is; else its content tells.")
@click.option(
    "--to", "write_as", type=click.Choice(WRITTEN), help="What TARGET shall be; else its suffix tells."
)
@click.option("--device", type=click.IntRange(min=0), help="Which device, where SOURCE holds several.")
@solver_option
@alignment_option
@json_option
def convert(
    source: Path,
    target: Path,
    read_as: str | None,
    write_as: str | None,
    device: int | None,
    solver: str,
    alignment: int,
    as_json: bool,
) -> None:
    r"""Read SOURCE as the profile of one step, and write it to TARGET.

    \b
    Read:    profile, minimalloc (CSV), rmm (log), cupy (memory hook), torch (snapshot)
    Written: profile (.profile), minimalloc (.csv), torch (.pickle, for pytorch.org/memory_viz),
             chrome (.json, for ui.perfetto.dev)

    The last two show the plan: where each block lies. Exit status 2, and nothing written, where SOURCE is not what it
    should be.
    """
    from ..profiler import formats

    form = write_as or formats.format_of(target)
    profile = formats.read(source, read_as, device)
    offsets = None
    if formats.needs_offsets(form):
        from ..planning import make_plan

        offsets = make_plan(profile, alignment=alignment, planner=solver).offset
    formats.write(target, form, profile, offsets)
    if as_json:
        figures = {
            "target": str(target),
            "format": form,
            "blocks": len(profile),
            "live_peak": profile.live_peak,
        }
        click.echo(json.dumps(figures))
    else:
        click.echo(
            f"{source}: {len(profile):,} blocks, live peak {profile.live_peak:,} bytes; written to {target} ({form})"
        )
