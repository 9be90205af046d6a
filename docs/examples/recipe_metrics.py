"""A pool's metrics in Prometheus's text format, which any web server can answer with."""

import numpy as np

from stowplan import NumpyPool


def metrics(pool):
    """Return the pool's statistics as a page for Prometheus."""
    stats = pool.stats
    counts = {"replayed": stats.replayed} | stats.reasons  # their sum is stats.requests
    sizes = {"live": stats.live_bytes, "reserved": stats.reserved_bytes, "arena": stats.arena_bytes}
    lines = ["# TYPE stowplan_requests_total counter"]
    lines += [f'stowplan_requests_total{{by="{name}"}} {count}' for name, count in counts.items()]
    lines += ["# TYPE stowplan_bytes gauge"]
    lines += [f'stowplan_bytes{{of="{name}"}} {size}' for name, size in sizes.items()]
    return "\n".join(lines)


pool = NumpyPool(warmup=0)
for _number in range(10):
    with pool, pool.step():
        total = float((np.ones(10_000) * 2).sum())
    pool.wait()  # only to make this example deterministic
print(metrics(pool))
assert 'by="replayed"} 16' in metrics(pool)
