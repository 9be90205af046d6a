"""Export a pool's statistics to Prometheus, through its official client.

::

    from prometheus_client import start_http_server
    from stowplan.prometheus import PoolCollector

    PoolCollector(pool, "train").register()
    start_http_server(8000)

=====================================  =======  =======================================================================
metric                                 kind     labels besides ``pool``
=====================================  =======  =======================================================================
stowplan_requests_total                counter  ``served``: plan, or why not: a reason of ``Stats.reasons``
stowplan_plans_total                   counter  -
stowplan_reoptimizations_total         counter  -
stowplan_plans_skipped_total           counter  -
stowplan_plans_failed_total            counter  -
stowplan_planning_seconds_total        counter  -
stowplan_bytes                         gauge    ``of``: a size in `.Stats`, without ``_bytes``: live, peak_live, ...
=====================================  =======  =======================================================================

The statistics are read when Prometheus asks, and cost a running step nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .allocator.counts import Kind
from .allocator.stats import COUNTS, of_kind
from .errors import MissingDependencyError

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingDependencyError(
        "prometheus_client is not installed; expected for metrics: pip install 'stowplan[prometheus]'"
    ) from error

if TYPE_CHECKING:
    from .allocator import CupyPool, NumpyPool

__all__ = ["PoolCollector"]


class PoolCollector(Collector):
    """The metrics of one pool. It does not keep the pool alive; after the pool's end there are no metrics.

    Parameters
    ----------
    pool
        The pool.
    name
        The value of the label ``pool``.
    """

    def __init__(self, pool: CupyPool | NumpyPool, name: str = "pool") -> None:
        self._pool = weakref.ref(pool)
        self._name = name

    def register(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Add the metrics to a registry; by default to the one that ``start_http_server`` serves."""
        registry.register(self)

    def describe(self) -> list[Metric]:
        """Return the metrics without figures: two pools may have the same ones, told apart by name."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        pool = self._pool()
        if pool is None:
            return
        stats = pool.stats
        requests = CounterMetricFamily(
            "stowplan_requests", "Requests, by what served them.", labels=["pool", "served"]
        )
        for served, requested in {"plan": stats.replayed, **stats.reasons}.items():
            requests.add_metric([self._name, served], requested)
        yield requests
        for name, count in COUNTS.items():
            if count.metric:
                counter = CounterMetricFamily(f"stowplan_{name}", count.text, labels=["pool"])
                counter.add_metric([self._name], getattr(stats, name))
                yield counter
        sizes = GaugeMetricFamily("stowplan_bytes", "Memory in bytes.", labels=["pool", "of"])
        for name, size in of_kind(stats, Kind.BYTES).items():
            sizes.add_metric([self._name, name.removesuffix("_bytes")], size)
        yield sizes
