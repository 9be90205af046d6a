"""Copied beside programs that run under ``stowplan run`` and know nothing of its pools: they wait for plans by it."""

import gc


def for_plans() -> None:
    """Return when every pool of the process has made the plans that it has begun; at once where there is none."""
    for pool in [it for it in gc.get_objects() if type(it).__name__ in ("NumpyPool", "CupyPool")]:
        pool.wait()
