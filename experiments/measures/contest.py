"""A contest of allocators on the host: what the experiments with programs and Dask have in common.

A *contestant* is a way to do the same work: the first one does it as it is, `OURS` with stowplan, and each of `peers`
with something in its environment. In a *round* each does it once, in another order each time. A ratio is that of two
runs of one round; the median over rounds counts, and its standard error stands beside it.

What a row has, for each contestant C: ``cpu_C``, ``faults_C`` and ``rss_C``, the median ratios to the first one's;
``error_C``, the standard error of the first; ``seconds_C``, ``count_C`` and ``bytes_C``, the median CPU time, page
faults and resident set; ``identical``, whether all runs had the same output.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np

from . import kept, output, peers
from .apart import CannotRunError
from .kept import Row
from .medians import standard_error

T = TypeVar("T")

OURS = "stowplan"
OTHERS = (*peers.LIBRARIES, peers.TUNED_GLIBC)


@dataclass(frozen=True)
class Usage:
    """What one run used: CPU time in seconds, minor page faults, largest resident set in bytes; and its output."""

    cpu: float
    faults: int
    rss: int
    output: object
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Statistics of stowplan's pools, where the run has them."""


def contestants(first: str) -> dict[str, dict[str, str]]:
    """Return what each adds to the environment, by name: the first one and `OURS` nothing."""
    return {first: {}, OURS: {}, **peers.available()}


def in_turns(names: Sequence[str], rounds: int, seed: int, run: Callable[[str], T]) -> dict[str, list[T]]:
    """Run so many rounds; return what the runs of each contestant returned."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[T]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in map(str, rng.permutation(names)):
            found[name].append(run(name))
    return found


def row_of(found: Mapping[str, Sequence[Usage]]) -> Row:
    """Return the row of these runs, by contestant and round."""
    plain = next(iter(found.values()))
    outputs = {use.output for runs in found.values() for use in runs}
    row: Row = {"rounds": len(plain), "identical": len(outputs) == 1}
    for name, runs in found.items():
        pairs = list(zip(runs, plain, strict=True))
        cpu = [use.cpu / other.cpu for use, other in pairs]
        row |= {
            f"seconds_{name}": _median([use.cpu for use in runs]),
            f"cpu_{name}": _median(cpu),
            f"error_{name}": standard_error(cpu),
            f"faults_{name}": _median([use.faults / max(other.faults, 1) for use, other in pairs]),
            f"rss_{name}": _median([use.rss / other.rss for use, other in pairs]),
            f"count_{name}": _median([use.faults for use in runs]),
            f"bytes_{name}": _median([use.rss for use in runs]),
        }
    return row


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def others_in(rows: Sequence[Row]) -> list[str]:
    """Return the contestants beside the first one that took part."""
    return [name for name in (OURS, *OTHERS) if any(f"cpu_{name}" in row for row in rows)]


def with_errors(row: Row) -> Row:
    """Return a row that has each ratio and its standard error together, too, as ``KEY_with_error``."""
    pairs = [(key, key.replace("cpu_", "error_", 1)) for key in row if key.startswith("cpu_")]
    pairs.append(("verdict", "verdict_error"))
    return row | {
        f"{key}_with_error": f"{row[key]:.3f} ± {row[error]:.3f}" for key, error in pairs if key in row
    }


def cpu_columns(names: Sequence[str]) -> list[output.Column]:
    """Columns of the CPU time over the first contestant's."""
    return [output.Column(f"{name}: CPU", f"cpu_{name}_with_error") for name in names]


def options(
    quick: str, rounds: int, quick_rounds: int
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options that all contests have, and say which peers are missing; `quick` says what ``--quick`` does."""
    default = rounds

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(quick: bool, rounds: int, **others: Any) -> None:
            for line in peers.missing():
                click.echo(line, err=True)
            command(quick=quick, rounds=rounds or (quick_rounds if quick else default), **others)

        of = f"Rounds of each.  [default: {rounds}; quick: {quick_rounds}]"
        for option in (
            output.out,
            click.option(
                "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the turns."
            ),
            click.option("--rounds", type=click.IntRange(2), help=of),
            click.option("--quick", is_flag=True, help=quick),
        ):
            run = option(run)
        return run

    return add


def measured(about: Row, path: Path, study: Row, measure: Callable[[], Row]) -> Row:
    """Return the row kept in a file for the same study, or measure it; with a note if that fails."""
    try:
        return about | kept.finished(path, study, measure)
    except CannotRunError as error:
        return about | {"note": f"failed: {error}", "failed": True}


def finish(
    rows: Sequence[Row],
    columns: Sequence[output.Column],
    path: Path,
    title: str,
    note: str,
    packages: Sequence[str],
) -> None:
    """Write the table; exit with 1 if something failed or differed."""
    shown = [with_errors(row) for row in rows]
    output.write_table(shown, columns, path, title, note, packages)
    click.echo(f"the table: {path.with_suffix('.md')}")
    if any(row.get("failed") or row.get("identical") is False for row in rows):
        sys.exit(1)
