"""What was removed, for one release: an import of it fails with a line that tells what to use instead.

A row of `REMOVED` is all that it takes. As an attribute (``stowplan.served``) there is no such name, and the
AttributeError has the same line; nor is it in ``dir(stowplan)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from .common.errors import RemovedError

REMOVED = {
    "stowplan.dask.why_unknown": "no check: PoolPlugin uses Dask's public names",
    "stowplan.executors": "a pool in the threads or processes of an executor: docs/recipes.rst",
    "stowplan.insight.plots": "stowplan.insight.report.save_report, or `stowplan report FILE`, which draw",
    "stowplan.prediction.fit_graphs": "stowplan.prediction.fit_steps, of profiles",
    "stowplan.prediction.fit_ranks": "stowplan.prediction.fit_steps, of one rank's profiles",
    "stowplan.prometheus": "the metrics of pool.stats: docs/recipes.rst",
    "stowplan.served": "pool.serving() and pool.step() in the function: docs/recipes.rst",
}
"""Full name to what is expected instead."""


def line(name: str) -> str:
    """Return what to tell of a name in `REMOVED`."""
    return f"{name} was removed; expected {REMOVED[name]}"


class RemovedFinder:
    """The last finder of ``sys.meta_path``: what nobody has found may have been removed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raise `RemovedError` if it was; return None else, as it is not found."""
        if name in REMOVED:
            raise RemovedError(line(name), name=name)
