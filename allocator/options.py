"""What every pool lets a program choose: each option is declared, checked and documented here, once.

A pool passes on its keywords, adds what is its own, and has `documented` put the options into its help::

    @documented
    class MyPool(Pool):
        def __init__(self, *, mine: int = 0, **options: Unpack[Options]) -> None:
            super().__init__(options)
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypedDict, TypeVar, cast

from ..common.errors import PoolError
from ..common.units import parse_bytes, parse_share
from .planning_budget import SHARE

C = TypeVar("C", bound=type)

ALWAYS_THERE = ("auto", "best_fit_orders")
"""Solvers that need no look: the first look imports them all."""

PLACEHOLDER = "options\n    How to plan, as for all pools: `PlanningOptions`."
"""What `documented` replaces in a pool's docstring."""


class Options(TypedDict, total=False):
    """The keywords of `PlanningOptions`, for type checkers and editors."""

    warmup: int
    solver: str
    max_plans: int
    planning_share: float
    auto_step: bool
    small: int | None
    limit: int | str | None


class PlanningOptions(NamedTuple):
    """How a pool plans, and what it leaves alone. A pool checks them.

    Parameters
    ----------
    warmup
        Steps that pass before one is recorded; first steps are seldom representative.
    solver
        Name of the packing solver, from ``stowplan.packing.solvers``, or ``"auto"``.
    max_plans
        Plans to keep, the most recently used.
    planning_share
        CPU time that making plans may use, as a share of the CPU time of the rest of the process since the pool was
        made and 2 seconds more; the first four plans come in any case. Records over budget are skipped and counted
        (``stats.plans_skipped``). ``math.inf``: no bound, and ``solver="auto"`` does not pack in haste.
    auto_step
        For programs that do not mark their steps: in each thread a step ends, and the next begins, where an optimizer
        of Chainer's or PyTorch's has updated. The first update begins the first step. See ``Pool.step``.
    small
        Requests below this many bytes are neither planned nor counted. None: as many as the array library or the C
        library has caches for (NumPy: 1033; PyTorch on the host: 16384). On a device all requests are planned, and
        None is the one choice.
    limit
        The most that arenas, as a whole, and blocks that lie in none may take together, on each device: bytes, text
        such as ``"8 GiB"``, or ``"80%"`` of the device's memory or the host's. An arena is not made larger than that
        allows, and a request beyond it fails as without memory. None: no limit.

    Raises
    ------
    PoolError
        An option is not what it is to be, or there is none of this name; ``auto_step=True``, where neither Chainer nor
        PyTorch is installed.
    UnknownSolverError
        There is no such solver.

    Examples
    --------
    Every pool takes them as keywords, and checks them:

    >>> from stowplan import NumpyPool
    >>> pool = NumpyPool(warmup=0, max_plans=4, limit="2 GiB")
    >>> NumpyPool(warmup=-1)
    Traceback (most recent call last):
    stowplan.errors.PoolError: warmup is -1; expected a number of steps, 0 or more
    """

    warmup: int = 1
    solver: str = "auto"
    max_plans: int = 32
    planning_share: float = SHARE
    auto_step: bool = False
    small: int | None = None
    limit: int | str | None = None

    @classmethod
    def of(cls, pool: str, options: Options) -> PlanningOptions:
        """Return the options that a pool, by its class's name, was given; errors are as documented in the class."""
        if "planner" in options:  # for one release
            warnings.warn(f"{pool}(planner=...) is now {pool}(solver=...)", DeprecationWarning, stacklevel=4)
            options = cast(Options, {{"planner": "solver"}.get(k, k): one for k, one in options.items()})
        for name in options.keys() - set(cls._fields):
            from difflib import get_close_matches

            likely = get_close_matches(name, cls._fields, 1)
            hint = f"did you mean {likely[0]!r}? " if likely else ""
            raise PoolError(f"{pool} has no option {name!r}: {hint}expected {', '.join(cls._fields)}")
        chosen = cls(**options)
        chosen.check()
        return chosen

    def check(self) -> None:
        """Raise an error if an option is not what it is to be, as documented in the class."""
        _check_whole("warmup", self.warmup, 0, "a number of steps")
        _check_whole("max_plans", self.max_plans, 1, "a number of plans")
        if self.small is not None:
            _check_whole("small", self.small, 0, "None or a number of bytes")
        share = self.planning_share
        if not isinstance(share, (int, float)) or isinstance(share, bool) or math.isnan(share) or share < 0:
            raise PoolError(
                f"planning_share is {share!r}; expected a share of the program's CPU time, 0 or more"
            )
        if self.solver not in ALWAYS_THERE:
            from ..packing.registry import find

            find(self.solver)
        self.limit_bytes(lambda: 1 << 40)

    def limit_bytes(self, whole: Callable[[], int]) -> int:
        """Return the limit in bytes, of a memory of as many bytes as `whole` returns; 0: none."""
        return 0 if self.limit is None else limit_bytes(self.limit, whole)

    @property
    def limit_share(self) -> float | None:
        """The limit as a share of each device's memory; None where it is a number of bytes, or none."""
        return None if self.limit is None else parse_share(self.limit)

    def refuse_small(self, what: str) -> None:
        """Raise PoolError if `small` is given to a pool that plans requests of any size."""
        if self.small is not None:
            raise PoolError(f"small is {self.small!r}; expected None: {what} of any size are planned")


def _check_whole(name: str, value: object, least: int, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PoolError(f"{name} is {value!r}; expected {what}, {least} or more")


def limit_bytes(limit: int | str, whole: Callable[[], int]) -> int:
    """Return the bytes of 4096, ``"8 GiB"``, or ``"80%"`` of as many as `whole` returns.

    Raises
    ------
    PoolError
        It is none of these, or 0.
    """
    found = 0
    if isinstance(limit, (int, str)):
        with suppress(ValueError):
            share = parse_share(limit)
            found = parse_bytes(limit) if share is None else int(share * whole())
    if not found:
        raise PoolError(
            f"limit is {limit!r}; expected bytes, 1 or more, like 4096, '512MiB' or '4 GiB', or '80%'"
        )
    return found


def documented(pool: C) -> C:
    """Put the options into a pool's docstring and signature, in place of ``**options``."""
    _self, *own, _options = inspect.signature(vars(pool)["__init__"]).parameters.values()
    by_keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(
            name, by_keyword, default=default, annotation=Options.__annotations__[name].__forward_arg__
        )
        for name, default in PlanningOptions._field_defaults.items()
    ]
    pool.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    if pool.__doc__ and PlanningOptions.__doc__:
        _, _, text = inspect.cleandoc(PlanningOptions.__doc__).partition("Parameters\n----------\n")
        pool.__doc__ = inspect.cleandoc(pool.__doc__).replace(PLACEHOLDER, text.partition("\n\nRaises")[0])
    return pool
