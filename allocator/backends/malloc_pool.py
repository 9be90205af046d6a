"""The pool under malloc: large blocks of any library in the process, by way of one that is loaded before all others.

That one (preload.cpp) only the dynamic loader can put before the C library, when a process begins:
``LD_PRELOAD``. ``stowplan run --preload`` does that.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from typing import Any

from ...errors import PoolError
from .._core import NativePlace, set_aside
from ..planning_budget import SHARE
from ..pool import Plans
from .native_pool import NativeHostPool

LEAST = 1 << 16
"""Bytes; requests below are the C library's, and nobody looks at them."""
PAGE = 4096
"""Bytes. What is the pool's begins a page, so that a free of anything else is the C library's at once."""


class MallocPool(NativeHostPool):
    """Serve malloc's large blocks, those of repeated steps from a plan, and all others from a cache of huge pages.

    Parameters
    ----------
    planner, max_plans, planning_share, auto_step, limit, plans
        As for `NumpyPool`.

    Raises
    ------
    PoolError
        `library_path()` was not in ``LD_PRELOAD`` when this process began; another `MallocPool` serves already.
    """

    alignment = PAGE

    def __init__(
        self,
        *,
        warmup: int = 1,
        planner: str = "auto",
        max_plans: int = 32,
        planning_share: float = SHARE,
        auto_step: bool = False,
        limit: int | None = None,
        plans: Plans = None,
    ) -> None:
        super().__init__(
            small=LEAST,
            scope="process",
            limit=limit,
            plans=plans,
            auto_step=auto_step,
            planning_share=planning_share,
            warmup=warmup,
            planner=planner,
            max_plans=max_plans,
            enter=functools.partial(
                set_aside, True
            ),  # what the thread of the outcomes asks for is not the program's
        )

    def _place(self) -> NativePlace:
        return _place()

    def _take_place(self) -> None:
        _library().stow_malloc_install(_table())

    def _leave_place(self) -> None:
        """Nothing: blocks that were handed out are freed through the table."""

    def _backend(self) -> str:
        return "malloc"


def library_path() -> str:
    """Return the path of the library for ``LD_PRELOAD``.

    Raises
    ------
    PoolError
        It is not there.
    """
    spec = importlib.util.find_spec("stowplan.allocator._preload")
    if spec is None or spec.origin is None:
        raise PoolError("the library for LD_PRELOAD is not there; expected stowplan to be built on Linux")
    return os.path.realpath(spec.origin)


def is_preloaded() -> bool:
    """Return whether this process has the library before the C library."""
    return hasattr(ctypes.CDLL(None), "stow_malloc_install")


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL(None)
    if not hasattr(library, "stow_malloc_install"):
        raise PoolError(
            "this process began without the library under malloc; expected `stowplan run --preload`, "
            f"or LD_PRELOAD={library_path()}"
        )
    library.stow_malloc_original.restype = ctypes.c_void_p
    library.stow_malloc_install.argtypes = [ctypes.c_void_p]
    library.stow_malloc_install.restype = None
    return library


@functools.cache
def _place() -> NativePlace:
    return NativePlace(_library().stow_malloc_original())


@functools.cache
def _table() -> int:
    return _place().under_malloc()
