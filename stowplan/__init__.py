"""stowplan: a profile-guided memory planner and runtime allocator for array programs.

Watch one step of a program that repeats, compute the best place for every block, reserve one arena, and serve every
later step from it by returning precomputed addresses.

Importing this module imports no array framework and no compiled code; names are loaded when they are first used, and
so are `stowplan.chainer`, `stowplan.torch` and `stowplan.dask`. An ``import chainer`` after it works on today's NumPy
and Python.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .common.errors import PoolError, StowplanError
from .common.import_hooks import once_imported
from .common.lazy import lazily
from .removed import REMOVED, RemovedFinder, line

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from . import chainer as chainer
    from . import dask as dask
    from . import torch as torch
    from .allocator import CupyPool, NumpyPool, TorchPool
    from .cli.scripts.step_markers import step
    from .prediction import guard, predict
    from .profiler import CupyRecorder, NumpyRecorder, Profile, TorchRecorder

__all__ = [
    "CupyPool",
    "CupyRecorder",
    "NumpyPool",
    "NumpyRecorder",
    "PoolError",
    "Profile",
    "StowplanError",
    "TorchPool",
    "TorchRecorder",
    "__version__",
    "guard",
    "predict",
    "step",
]

_ALLOCATOR = os.path.join(os.path.dirname(__file__), "allocator")
if os.path.islink(_ALLOCATOR) and not any(name.endswith(".so") for name in os.listdir(_ALLOCATOR)):
    raise ImportError(
        f"{os.path.dirname(__file__)} is stowplan's source, which is not built there; expected another current folder, "
        "for the stowplan that is installed, or 'pip install --editable .' in this one"
    )

_load = lazily(
    __name__,
    {
        **dict.fromkeys(("chainer", "dask", "errors", "torch")),
        **dict.fromkeys(("CupyPool", "NumpyPool", "TorchPool"), "allocator"),
        **dict.fromkeys(("CupyRecorder", "NumpyRecorder", "Profile", "TorchRecorder"), "profiler"),
        **dict.fromkeys(("guard", "predict"), "prediction"),
        "step": "cli.scripts.step_markers",
    },
)


def __getattr__(name: str) -> Any:
    removed = f"{__name__}.{name}"
    if removed in REMOVED:
        raise AttributeError(line(removed))
    return _load(name)


sys.meta_path.append(RemovedFinder())


def _on_todays_numpy() -> AbstractContextManager[Any]:
    from .compat import importing_chainer

    return importing_chainer()


once_imported("chainer", during=_on_todays_numpy)


def load_ipython_extension(shell: Any) -> None:
    """Load the magic ``%%stowplan``: ``%load_ext stowplan`` calls it. See `stowplan.cli.notebook`."""
    from .cli.notebook import load_ipython_extension as load

    load(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
