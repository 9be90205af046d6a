"""The solvers, one idea a file. Each registers itself: see `packing.registry`."""

from . import best_fit, best_fit_orders, by_conflicts, exact, mip, peak_outward, search, window_repair  # noqa: F401
