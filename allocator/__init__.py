"""Serving the plan: the replay core, the policy of a lane, and the pools (backends).

Names are loaded when they are first used: a pool alone needs nothing of what makes plans, until there is one to make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazily

if TYPE_CHECKING:
    from ..planning import Plan, make_plan
    from .backends.cupy_pool import CupyPool
    from .backends.numpy_pool import NumpyPool
    from .backends.torch_pool import TorchPool
    from .stats import Stats

__all__ = ["CupyPool", "NumpyPool", "Plan", "Stats", "TorchPool", "make_plan"]

__getattr__ = lazily(
    __name__,
    {
        "CupyPool": "backends.cupy_pool",
        "NumpyPool": "backends.numpy_pool",
        "Plan": ".planning",
        "Stats": "stats",
        "TorchPool": "backends.torch_pool",
        "make_plan": ".planning",
    },
)
