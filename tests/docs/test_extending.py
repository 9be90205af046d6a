"""The examples of docs/extending.rst pass the contract suites that their page names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from ..contracts.order_solver import OrderSolverContract
from ..contracts.packing_solver import PackingSolverContract
from ..contracts.schedule_solver import ScheduleSolverContract

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "extending"


def example(name: str) -> ModuleType:
    """An example as a module; what it registers is registered for this process."""
    full = f"docs_examples_extending_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


example("packing_solver")
example("schedule_solver")
example("order_solver")


class TestLargestArea(PackingSolverContract):
    solver = "largest_area"


class TestLargestDropped(ScheduleSolverContract):
    solver = "largest_dropped"


class TestFewestAdded(OrderSolverContract):
    solver = "fewest_added"
