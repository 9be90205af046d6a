"""What was removed or moved, for one release: an import fails with a line that tells what to use instead, or warns.

A row of `REMOVED`, or `MOVED`, is all that it takes. As an attribute (``stowplan.served``) there is no such name, and
the AttributeError has the same line; nor is it in ``dir(stowplan)``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
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

MOVED = {
    "stowplan.minimalloc": "stowplan.common.minimalloc",
    "stowplan.prediction.steps": "stowplan.prediction.profile_scaling",
    "stowplan.profiler.program": "stowplan.profiler.program_summary",
}
"""Full name of a module to its name now."""


def line(name: str) -> str:
    """Return what to tell of a name in `REMOVED`."""
    return f"{name} was removed; expected {REMOVED[name]}"


class RemovedFinder:
    """The last finder of ``sys.meta_path``: what nobody has found may have been removed, or moved."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise `RemovedError` if it was removed; warn, and find it, if it was moved; else return None."""
        if name in REMOVED:
            raise RemovedError(line(name), name=name)
        if name not in MOVED:
            return None
        warnings.warn(f"{name} is now {MOVED[name]}", DeprecationWarning, stacklevel=2)
        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that has moved."""
        module = import_module(MOVED[spec.name])
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave it as it is: it has run."""
        module.__spec__ = self._spec
