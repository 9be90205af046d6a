"""What programs take of a GPU, and how long, under several allocators: ``python -m experiments.gpu``.

Programs that know nothing of stowplan (`cupy_programs`, `torch_programs`), each under the framework's own allocators
and under stowplan's pool, without a mark and with marked steps. Each run is in a process of its own: one for the bytes,
then some in turn for the times.

The table is written after each program. What has been measured is not run again by the same command, so it goes on
where it stopped; after ``--limit`` seconds it begins no further program. With ``--quick`` it runs on the simulated
device, too: bytes are exact there, and times say nothing.

Exit status 1 if a program's results differ, or something failed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import numpy as np

from ..measures import contest, output
from ..measures.apart import CannotRunError, ask
from ..measures.kept import Row
from ..measures.runner import NO_GPU, SIMULATED, has_gpu, is_simulated

ROUNDS, QUICK_ROUNDS = 3, 2
COLUMNS = [
    output.Column("program", "program"),
    output.Column("allocator", "way"),
    output.Column("at most, MiB", "most", output.mib),
    output.Column("at the end, MiB", "end", output.mib),
    output.Column("ms a step", "seconds", output.milliseconds),
    output.Column("over the first", "ratio", "{:.2f}".format),
    output.Column("replayed", "replayed", "{:.0%}".format),
    output.Column("same results", "identical", lambda same: "yes" if same else "NO"),
]
NOTE = (
    "In use of the device by its driver, beside what was in use before: at most, and at the end. A step's time is the "
    "mean of the later half, the median over rounds."
)


def measured(framework: str, program: str, ways: dict[str, str], quick: bool, rounds: int, seed: int) -> Row:
    """Measure a program in all ways; ``lines`` are the rows of the table."""

    def run(way: str, watched: bool = False) -> Row:
        asked = {"framework": framework, "program": program, "way": way, "quick": quick, "watched": watched}
        found: Row = ask("experiments.gpu.measure:run", asked, seconds=120)
        return found

    lines, looked = {way: {"way": title} for way, title in ways.items()}, {}
    for way, line in lines.items():
        try:
            looked[way] = run(way, watched=True)
        except CannotRunError as error:
            line["note"] = f"{error}"
    timed = contest.in_turns(list(looked), rounds, seed, run)
    digests = {found["digest"] for runs in (looked.values(), *timed.values()) for found in runs}
    for way, runs in timed.items():
        pairs = zip(runs, timed[next(iter(timed))], strict=True)
        lines[way] |= {key: looked[way].get(key) for key in ("most", "end", "replayed")}
        lines[way] |= {
            "seconds": float(np.median([found["seconds"] for found in runs])),
            "ratio": float(np.median([mine["seconds"] / its["seconds"] for mine, its in pairs])),
            "identical": len(digests) == 1,
        }
    return {"lines": list(lines.values())}


def rows_of(
    framework: str, device: str, quick: bool, rounds: int, seed: int, out: Path, until: float
) -> Iterator[Row]:
    """Yield the rows of a framework's programs."""
    try:
        programs = import_module(f"{__package__}.{framework}_programs")
    except ImportError as error:
        yield {"device": device, "program": framework, "note": f"left out: {error}"}
        return
    study = {"quick": quick, "rounds": rounds, "seed": seed}
    for program in programs.PROGRAMS:
        about = {"device": device, "program": program}
        if time.monotonic() > until:
            yield about | {"note": "not begun within the limit: the same command goes on here"}
            continue
        path = out / "gpu" / f"{framework}-{program}.json"
        arguments = framework, program, programs.WAYS, quick, rounds, seed
        row = contest.measured(about, path, study, lambda a=arguments: measured(*a))
        click.echo(f"{program}: {row.get('note', 'measured')}", err=True)
        yield from [about | line for line in row["lines"]] if "lines" in row else [row]


@click.command()
@contest.options("Small sizes and two rounds: what the simulated device can do.", ROUNDS, QUICK_ROUNDS)
@click.option(
    "--limit", default=600.0, show_default=True, help="Seconds after which no further program begins."
)
def main(quick: bool, rounds: int, limit: float, seed: int, out: Path) -> None:
    """Run programs under several allocators on a GPU."""
    if not has_gpu():
        raise click.ClickException(NO_GPU)
    device, until, rows = SIMULATED if is_simulated() else "gpu", time.monotonic() + limit, []
    table = out / "gpu", "Programs on a GPU under several allocators", NOTE, ("cupy", "torch")
    for framework in ("cupy", "torch"):
        for row in rows_of(framework, device, quick, rounds, seed, out, until):
            rows.append(row)
            output.write_table(rows, COLUMNS, *table)
    contest.finish(rows, COLUMNS, *table)


if __name__ == "__main__":
    main()
