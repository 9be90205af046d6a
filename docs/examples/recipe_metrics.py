"""A pool's metrics in Prometheus's text format, which any web server can answer with."""

import numpy as np

from stowplan import NumpyPool


def metrics(pool):
    """Return the pool's statistics as a page for Prometheus."""
    stats = pool.stats
    counters = {"replayed": stats.replayed} | stats.reasons  # their sum is stats.requests
    sizes = {"live": stats.live_bytes, "reserved": stats.reserved_bytes, "arena": stats.arena_bytes}
    return "\n".join(
        [
            "# HELP stowplan_requests_total Allocations, replayed, or by the reason why not.",
            "# TYPE stowplan_requests_total counter",
            *(f'stowplan_requests_total{{by="{name}"}} {count}' for name, count in counters.items()),
            "# HELP stowplan_bytes Memory in bytes.",
            "# TYPE stowplan_bytes gauge",
            *(f'stowplan_bytes{{of="{name}"}} {size}' for name, size in sizes.items()),
            "",
        ]
    )


pool = NumpyPool(warmup=0)
with pool:
    for _number in range(10):
        with pool.step():
            total = float((np.ones(10_000) * 2).sum())
        pool.wait()  # only to make this example deterministic

print(metrics(pool), end="")
assert (
    sum(int(line.split()[-1]) for line in metrics(pool).splitlines() if "{by=" in line) == pool.stats.requests
)
