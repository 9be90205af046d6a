"""Serving the plan: the replay core, the pools, one file per framework."""

from ..planning import Plan, make_plan
from .cupy_pool import CupyPool
from .numpy_pool import NumpyPool
from .stats import Stats

__all__ = ["CupyPool", "NumpyPool", "Plan", "Stats", "make_plan"]
