"""A budget of bytes as users give it, and the schedule of a step within it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import BudgetError
from ..scheduling import Schedule, StepGraph, simulate
from ..scheduling.schedule import as_recorded
from ..scheduling.solve import Solution, schedule
from ..units import human_bytes, parse_bytes, parse_share
from .evictions import RATES


@dataclass(frozen=True)
class Within:
    """How steps are scheduled.

    Attributes
    ----------
    budget
        Bytes, a text like ``"2 GiB"``, a share of the plain peak like ``"60%"``; None: what costs no time.
    solver, time_limit, swap
        As for `stowplan.scheduling.schedule`.
    """

    budget: int | str | None
    solver: str
    time_limit: float | None
    swap: bool = False

    def __post_init__(self) -> None:
        if self.budget is not None and parse_share(self.budget) is None:
            parse_bytes(self.budget)

    def solve(self, step: StepGraph, resident: int, plain: int, what: str) -> Solution:
        """Return the schedule of a step with the least time within the budget.

        Parameters
        ----------
        step
            With seconds.
        resident
            Bytes of the budget that are alive throughout: `what` they are.
        plain
            Bytes of the step that recomputes nothing, with the resident ones.

        Raises
        ------
        BudgetError
            No schedule that was found keeps to the budget.
        """
        share = None if self.budget is None else parse_share(self.budget)
        total = (
            None if self.budget is None else parse_bytes(self.budget) if share is None else int(share * plain)
        )
        own = None if total is None else max(total - resident, 0)
        try:
            return schedule(step, own, self.solver, self.time_limit, RATES, self.swap)
        except BudgetError as error:
            floor = error.floor.partition("; ")[0]  # its advice is not all for here
            raise BudgetError(
                f"a budget of {human_bytes(total or 0)} is below what any schedule found needs: the least is "
                f"{human_bytes(resident + error.least)}, {human_bytes(resident)} of it {what}; {floor}",
                resident + error.least,
                error.floor,
                error.solution,
            ) from None


def plain_peak(step: StepGraph) -> int:
    """Return the peak of a step in its own order without recomputation, beside what is resident."""
    order = np.arange(len(step), dtype=np.int64)
    return simulate(step, Schedule(order, as_recorded(step).way)).peak
