"""Run a program through pools, and print what they counted: what ``stowplan run`` does.

Until the program ends, little is imported: it starts within some percent of Python's own start-up.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from time import process_time
from typing import TYPE_CHECKING, Any, TextIO

from .auto_pools import pools
from .script import Script

if TYPE_CHECKING:
    from ...allocator import Stats

NOTHING = "stowplan: {}: no request for a block that is large enough to plan"
NO_STEP = (
    "stowplan: --auto-step: no optimizer of Chainer's or PyTorch's has updated, so no step was told; mark the loop's "
    "body by `with stowplan.step():`, or a function by --step-function MODULE:FUNCTION, or leave the option out"
)


def run_served(
    program: Script,
    arguments: Sequence[str],
    step_function: str | None = None,
    *,
    stats: str | os.PathLike[str] | None = None,
    as_json: bool = False,
    auto_step: bool = False,
) -> int:
    """Run a program, its arrays served by pools; return its exit status.

    Parameters
    ----------
    program, arguments, step_function
        As for `Script.run`.
    stats
        A file for the statistics, as JSON.
    as_json
        Whether the statistics are one line on standard output, rather than a line for each pool on standard error.
    auto_step
        Whether NumPy's pool is told steps by frameworks; if none did, a line on standard error says what to do.

    Raises
    ------
    ScriptError
        As `Script.run`.
    PoolError
        Steps are to be told, and there is no framework that does.
    OSError
        `stats` cannot be written.
    """
    with pools(auto_step) as serving:
        name, host = next(iter(serving.items()))
        faults, cpu = -_minor_faults(), -process_time()
        status = program.run(arguments, step_function)
        faults, cpu = faults + _minor_faults(), cpu + process_time()
        if len(serving) == 1 and not (host.has_served or as_json or stats):
            print(NOTHING.format(name), file=sys.stderr)
            return status
        if auto_step and not host.stats.steps:
            print(NO_STEP, file=sys.stderr)
        figures = {name: as_figures(pool.stats) for name, pool in serving.items()}
    whole = {**figures, "minor_faults": faults, "exit_status": status}
    if as_json:
        print(_as_json(whole))
    else:
        print_counts(figures, sys.stderr)
        print(f"stowplan: {cpu:.1f} s of CPU time, {faults:,} page faults", file=sys.stderr)
    if stats is not None:
        from ...common.files import atomic_write

        with atomic_write(stats) as file:
            file.write((_as_json(whole) + "\n").encode())
    return status


def print_counts(figures: dict[str, dict[str, Any]], file: TextIO) -> None:
    """Print a line for each pool that has served; if none has, for the first one.

    Parameters
    ----------
    figures
        What `as_figures` returns, by the pool's name.
    file
        Where to.
    """
    served = {name: counts for name, counts in figures.items() if counts["requests"]}
    for name, counts in (served or figures).items():
        print(f"stowplan: {name}: {_counts(counts)}" if served else NOTHING.format(name), file=file)


def _counts(counts: dict[str, Any]) -> str:
    from ...common.units import human_bytes

    alone = counts["reasons"].get("heap_only", 0)
    served = f"{counts['requests']:,} allocations from the pool's heap, no step marked; "
    if alone < counts["requests"]:
        served = (
            f"{counts['steps']:,} steps; "
            f"{counts['replayed'] / counts['requests']:.1%} of {counts['requests']:,} allocations from a plan; "
        )
    return (
        f"{served}"
        f"peak reserved {human_bytes(counts['peak_reserved_bytes'])}, "
        f"peak live {human_bytes(counts['peak_live_bytes'])}"
    )


def _as_json(figures: dict[str, Any]) -> str:
    import json

    return json.dumps(figures)


def _minor_faults() -> int:
    """Return the minor page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def as_figures(stats: Stats) -> dict[str, Any]:
    """Return the figures of a pool: all its counts, and the share of what a plan might have served."""
    from dataclasses import asdict

    from ...allocator.counter_definitions import REASONS

    planned = stats.requests - sum(n for name, n in stats.reasons.items() if not REASONS[name].had_plan)
    return {
        "requests": stats.requests,
        **asdict(stats),
        "with_a_plan": planned,
        "share": stats.replayed / planned if planned else 0.0,
    }
