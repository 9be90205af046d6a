"""Solvers that come with the library keep to the contracts that docs/extending.rst demands of others."""

from __future__ import annotations

from typing import Any

from .order_solver import OrderSolverContract
from .packing_solver import PackingSolverContract
from .schedule_solver import ScheduleSolverContract

# A few of each kind, the quick ones: the solvers' own tests hold each to its plain Python twin.
PACKING = ("best_fit", "greedy_by_size")
SCHEDULING = ("chain", "lean")
ORDERING = ("exact", "greedy")


def suites(contract: type[Any], names: tuple[str, ...]) -> dict[str, type[Any]]:
    """Return a class for each solver, as pytest collects them."""
    made = [f"Test{contract.__name__}_{name}" for name in names]
    return {
        title: type(title, (contract,), {"solver": name}) for title, name in zip(made, names, strict=True)
    }


globals().update(suites(PackingSolverContract, PACKING))
globals().update(suites(ScheduleSolverContract, SCHEDULING))
globals().update(suites(OrderSolverContract, ORDERING))
