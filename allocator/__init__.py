"""Serving the plan: the replay core, the policy of a lane, and the pools (backends)."""

from ..planning import Plan, make_plan
from .backends.cupy_pool import CupyPool
from .backends.numpy_pool import NumpyPool
from .stats import Stats

__all__ = ["CupyPool", "NumpyPool", "Plan", "Stats", "make_plan"]
