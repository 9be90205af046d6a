"""Solvers that come with the library keep to the contracts that docs/extending.rst demands of others.

At least one quick solver of each kind; a new one adds a class. The solvers' own tests hold what each answers.
"""

from __future__ import annotations

from .order_solver import OrderSolverContract
from .packing_solver import PackingSolverContract
from .schedule_solver import ScheduleSolverContract


class TestBestFit(PackingSolverContract):
    solver = "best_fit"


class TestLean(ScheduleSolverContract):
    solver = "lean"


class TestExactOrder(OrderSolverContract):
    solver = "exact"
