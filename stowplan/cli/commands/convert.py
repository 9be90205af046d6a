"""``stowplan convert``: read another tool's trace, write a plan for another tool's viewer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...common.units import counted, human_bytes
from ._options import F, Name, OutputFile, alignment_option, solver_option
from ._reporter import Answer, Reporter, reporter

if TYPE_CHECKING:
    from ...profiler.formats import Format


def _format_option(flag: str, part: str, text: str) -> Callable[[F], F]:
    """Return an option that names a format which one can ``read``, or ``write``."""

    def known() -> Iterable[str]:
        from ...profiler import formats

        return (form.name for form in formats.registered() if getattr(form, part) is not None)

    return click.option(flag, f"{part}_as", type=Name("format", known), help=text)


class _Convert(Reporter):
    """Lists the registered formats in its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the formats."""
        from ...profiler import formats

        super().format_options(ctx, formatter)
        with formatter.section("Formats"):
            formatter.write_dl([(_how(form), form.what) for form in formats.registered()])


def _how(form: Format) -> str:
    """Return a format's name, and whether it is read or written."""
    done = ["read"] if form.read is not None else []
    if form.write is not None:
        done.append(f"written ({', '.join(form.suffixes)})")
    return f"{form.name}: {', '.join(done)}"


@reporter(
    "Read other tools' traces, write plans for their viewers.",
    "convert snapshot.pickle step.profile",
    _Convert,
)
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=OutputFile())
@_format_option("--from", "read", "Format of SOURCE; else its content tells.")
@_format_option("--to", "write", "Format of TARGET; else its suffix tells.")
@click.option("--device", type=click.IntRange(min=0), help="Which device, if SOURCE holds several.")
@solver_option
@alignment_option
def convert(
    source: Path,
    target: Path,
    read_as: str | None,
    write_as: str | None,
    device: int | None,
    **how: Any,
) -> Answer:
    """Read SOURCE as the profile of one step, and write it to TARGET.

    The format torch shows the plan: where each block lies. Exit status 2, and nothing written, if SOURCE is not what it
    should be.
    """
    from ...profiler import formats

    form = write_as or formats.format_of(target)
    profile = formats.read(source, read_as, device)
    offsets = None
    if formats.needs_offsets(form):
        from ...insight.comparison import plan_of

        offsets = plan_of(profile, **how).offset
    formats.write(target, form, profile, offsets)
    figures = {
        "target": str(target),
        "format": form,
        "blocks": len(profile),
        "planned_peak": profile.planned_peak,
    }
    blocks = f"{counted(len(profile), 'block')}, planned peak {human_bytes(profile.planned_peak)}"
    return Answer(figures, [f"{source}: {blocks}; written to {target} ({form})"])
