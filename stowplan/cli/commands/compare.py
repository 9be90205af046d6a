"""``stowplan compare``: what other pools would reserve for a profile."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ...common.units import counted, human_bytes
from . import _look
from ._options import BYTES, planning_options, profile_argument
from ._reporter import Answer, reporter

if TYPE_CHECKING:
    from ...insight.capacity import Failure
    from ...insight.comparison import Comparison


@reporter("Compare what memory pools would reserve for a step.", "compare step.profile")
@profile_argument
@click.option(
    "--size",
    type=BYTES,
    help="Report whether a log fits so much memory under each pool, like 78GiB, what fails first if not, and the "
    "size from which it fits.",
)
@planning_options
def compare(profile: Path, size: int | None, **how: Any) -> Answer:
    """Compare what pools would reserve for the step of PROFILE with stowplan's plan.

    PROFILE is any file that stowplan convert reads. The step is replayed through models of the pools of CuPy, PyTorch
    (with and without expandable segments), RMM and Chainer 1, and of no pool, until each stops growing. For a NumPy
    profile these are hypothetical, and the C library's malloc is measured. What the plan saves is a share of the
    program's memory: older and escaped blocks, and what the pool reserves.

    With --size, PROFILE is a whole log: RMM's, or a snapshot of PyTorch's. Exit status 1 if it fits under no pool.
    """
    found = _look.compared(profile, how)
    if size is not None:
        return _fit(profile, found, size)
    lines = (f"{profile}: {_look.counts(found.plan)}", *_look.program_lines(found.plan.profile), "")
    program = found.plan.profile.program
    note = ["With a limit a pool may do with less than it takes here: --size"] * (
        program is not None and program.is_log
    )
    return Answer(
        _look.memory_figures(profile, found), (*lines, _look.memory_table(found), *note, _look.WORDS)
    )


def _fit(path: Path, found: Comparison, size: int) -> Answer:
    """Tell whether a log fits so many bytes under each pool."""
    from ...insight import capacity
    from ...insight.comparison import POOL_TITLES

    profile = found.plan.profile
    log = capacity.log_of(profile)
    planned = found.with_plan
    if planned is None:  # a log without live bytes: its own blocks are all that is known
        planned = found.plan.arena_bytes + int(profile.unplanned_step_bytes().max())
    figures: dict[str, dict[str, Any]] = {}
    rows = _look.table("", "", "fits", "fits from")
    lines = []
    for pool in capacity.POOLS:
        with _look.status(f"{POOL_TITLES[pool]}", human_bytes) as progress:
            failure = capacity.first_failure(log, pool, size)
            smallest, least = capacity.smallest_capacity(log, pool, progress, size)
        fails = None if failure is None else dataclasses.asdict(failure)
        figures[pool] = {
            "fits": failure is None,
            "smallest": smallest,
            "least": least,
            "first_failure": fails,
        }
        rows.add_row(POOL_TITLES[pool], "no" if failure else "yes", _mib(smallest))
        if failure is not None:
            lines.append(f"{POOL_TITLES[pool]} fails at {_where(failure)}")
        if least < smallest:
            lines.append(
                f"{POOL_TITLES[pool]} fits some sizes from {_mib(least)} on, too, and fails at others between"
            )
    figures["plan"] = {"fits": planned <= size, "smallest": planned, "least": planned, "first_failure": None}
    rows.add_row("stowplan's plan", "yes" if planned <= size else "no", _mib(planned))
    fits = [name for name, one in figures.items() if one["fits"]]
    streams = len(np.unique(profile.stream))
    notes = [
        "a pool that places by best fit may fail at a larger size, too, that was not tried",
        f"{counted(streams, 'stream')}, read as one: pools that keep streams apart may need more"
        * (streams > 1),
        f"{human_bytes(log.older_bytes)} from before the log count as one block that stays"
        * (log.older_bytes > 0),
        *_look.refused_lines(profile.program),
    ]
    head = f"{path}: {counted(len(log.requests.block) - log.older, 'event')}; in {human_bytes(size)}"
    parts = (head, rows, *lines, *(note for note in notes if note))
    answer = {
        "profile": str(path),
        "size": size,
        "older": log.older_bytes,
        "streams": streams,
        "failed": 0 if profile.program is None else profile.program.failed,
        "wanted": 0 if profile.program is None else profile.program.wanted,
        "pools": figures,
    }
    return Answer(answer, parts, bad=not fits, why=f"{path} fits {human_bytes(size)} under no pool")


def _mib(size: int) -> str:
    return f"{-(-size // 2**20):,} MiB"


def _where(failure: Failure) -> str:
    return (
        f"event {failure.event:,}: {human_bytes(failure.size)} requested, {human_bytes(failure.live)} live, largest "
        f"hole {human_bytes(failure.hole)}, {human_bytes(failure.unreserved)} not reserved"
    )
