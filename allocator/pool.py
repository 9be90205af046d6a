"""What all pools have in common: steps, interruptions, plans and counts."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Literal, ParamSpec, TypeVar, overload

from ..common.errors import PoolError
from . import step_boundaries
from ._core import Enterable, Step, watch_forks
from .fork_handlers import register
from .lanes import Lanes
from .options import PlanningOptions
from .step import interrupt
from .step_boundaries import ToldSteps

if TYPE_CHECKING:
    from ..planning import Plan
    from ..profiler import Profile
    from ._core import Backend
    from .options import Options
    from .stats import Stats

P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound="Pool")


class Pool(ABC):
    """What serves the arrays of one library, those of repeated steps from plans: `NumpyPool`, `CupyPool`, `TorchPool`.

    Each device has lanes of its own, and so an arena and plans; the host is device 0. A subclass tells what a device's
    memory is (`_open`), where requests come from, and what plans are made for (`_backend`).

    Parameters
    ----------
    options
        How to plan.
    """

    alignment: ClassVar[int]
    """Bytes; of every planned offset."""

    _plans_at_once: ClassVar[bool] = True
    """Whether what plans, and what answers questions, is imported when the pool is made: later the program may have no
    file descriptor left, or another root. Else with the first step, and the first question."""

    _warned = False  # that a step has begun where the pool does not serve

    def __init__(self, options: Options) -> None:
        self._options = PlanningOptions.of(type(self).__name__, options)
        if self._options.auto_step:
            step_boundaries.listen()
        self._told = ToldSteps(is_over=not self._options.auto_step)
        if self._plans_at_once:
            from . import lane, report  # noqa: F401
        self._by_device: dict[int, Lanes] = {}
        register()
        watch_forks(self)

    def __reduce_ex__(self, protocol: object) -> Any:
        raise PoolError(
            "a pool cannot be pickled or copied: it serves the memory of its own process; "
            "expected a pool made in each process. Plans go from one to the other by save() and load()"
        )

    def _serves_here(self) -> bool:
        """Whether requests of this thread come to the pool, as far as it can tell."""
        return True

    @abstractmethod
    def _open(self, device: int) -> Backend:
        """Return the core that serves a device's requests."""

    @abstractmethod
    def _backend(self) -> str:
        """Tell what plans are made for: a plan file for something else is refused."""

    @staticmethod
    def _is_out_of_memory(error: BaseException) -> bool:
        """Whether it is what the library raises where there is no memory."""
        return isinstance(error, MemoryError)

    @abstractmethod
    def serving(self) -> AbstractContextManager[Any]:
        """Return a context manager in which the pool serves this thread, whether it did before or not."""

    def _current_device(self) -> int:
        """Return the number of this thread's current device."""
        return 0

    def _on(self, device: int) -> Lanes:
        """Return a device's lanes, which are made when they are first requested."""
        if device not in self._by_device:
            lanes = Lanes(self._open(device), self.alignment, self._options, self._is_out_of_memory)
            self._by_device.setdefault(device, lanes)
        return self._by_device[device]

    def _lanes(self) -> Lanes:
        """Return the lanes of this thread's current device."""
        return self._on(self._current_device())

    def _told_lanes(self) -> Lanes | None:
        """Return the lanes in which an update of this thread ends a step; None where the pool does not serve."""
        return self._lanes() if self._serves_here() else None

    def _all_lanes(self) -> list[Lanes]:
        """Return the lanes of all devices in use."""
        return list(self._by_device.values())

    def _reset_after_fork(self) -> None:
        for lanes in self._all_lanes():
            lanes.reset_after_fork()

    def step(self, key: Hashable = None, *, keeps_results: bool = False) -> Step:
        """Return a context manager around one step, the code that repeats, on the current device.

        An exception that leaves the step passes on; what the step did is not taken for a record.

        A pool with ``auto_step=True`` is told steps without this, with the key None. The first step that is marked ends
        that, for good.

        Parameters
        ----------
        key
            Tells which of several steps this is. Without it (and among steps of one key) plans are told apart by their
            requests.
        keeps_results
            What is alive when the step ends is its result, and lives as long as the program likes: tasks, whose results
            go to other tasks. It counts as escaped, and has no place in the plan. Without this it is expected to be
            alive, or not, as it was when the next step was watched.

        Raises
        ------
        PoolError
            The key cannot be hashed. On entry: this thread runs a step already, or it is in an interrupted part.

        Warns
        -----
        RuntimeWarning
            Once, if the pool does not serve this thread.
        """
        self._told.end(for_good=True)
        if not self._warned and not self._serves_here():
            self._warned = True
            warnings.warn(
                "a step begins where its pool does not serve, so nothing of it is planned; "
                "expected `with pool:` around the loop, in this thread",
                RuntimeWarning,
                stacklevel=2,
            )
        try:
            hash(key)
        except TypeError:
            raise PoolError(
                f"the step key {key!r} cannot be hashed; expected a string, for example"
            ) from None
        return Step(self._lanes(), key, keeps_results)

    def interrupt(self, function: Callable[P, R] | None = None) -> Any:
        """Enter a part of the program, in this thread, that does not repeat: upstream serves it, no profile sees it.

        It is a call that `resume` ends, a context manager, or a decorator. Parts may nest. Blocks may be allocated
        inside and freed outside, and the other way round.

        Examples
        --------
        >>> from stowplan import NumpyPool
        >>> pool = NumpyPool()
        >>> with pool.interrupt():
        ...     pass
        >>> @pool.interrupt
        ... def log_something():
        ...     pass
        """
        return interrupt(self._lanes(), function)

    def resume(self) -> None:
        """Leave the innermost interrupted part of this thread.

        Raises
        ------
        PoolError
            There is none.
        """
        self._lanes().resume()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until plans that are being made are ready for the next step, at most ``timeout`` seconds.

        A program never has to; a benchmark may want to. Return whether they are ready.
        """
        return self._lanes().wait(timeout)

    @property
    def stats(self) -> Stats:
        """A snapshot of the counts on the current device."""
        return self._lanes().stats()

    def __str__(self) -> str:
        return f"{type(self).__name__}: {self.stats}"

    @property
    def has_served(self) -> bool:
        """Whether any request has come that is large enough to plan."""
        return self._lanes().has_served()

    @overload
    def report(self, *, as_dict: Literal[False] = False) -> str: ...

    @overload
    def report(self, *, as_dict: Literal[True]) -> dict[str, Any]: ...

    def report(self, *, as_dict: bool = False) -> str | dict[str, Any]:
        """Tell what fills the memory, why requests were not replayed, and what to do about it; on the current device.

        Steps are counted from 1, the requests of a step from 0.

        Parameters
        ----------
        as_dict
            The same as a dict (bytes, counts) instead of text:

            - ``step``: this thread's: its number, whether it is running, its key, the requests so far, and those in its
              plan;
            - ``live_bytes``, ``planned_bytes`` (what the largest plan needs), ``reserved_bytes`` (``arena_bytes``,
              ``upstream_bytes`` and ``kept_bytes``), ``lower_bound`` (of the largest plan), ``fragmentation`` (arena /
              lower bound - 1); ``peak_live_bytes`` and ``peak_reserved_bytes``;
            - ``replayed``, ``guests``, ``upstream``; ``reasons``: name to ``requests``, ``why`` and ``action``;
            - ``largest``: the largest live blocks, each with its ``size``, ``stream``, ``place`` (``planned``, ``late``
              (guests, too), ``upstream``, or ``held`` for other streams), ``age`` (steps since its birth, -1: outside
              of all steps), ``request`` (its number on its stream in that step), and, where planned, ``due``: at which
              request it is to be free, which is the next step's if it is ``wrapped``;
            - ``plans``: ``key``, ``requests``, ``arena_bytes``, ``lower_bound``;
            - ``failure``: the text on the last request that upstream had no memory for, or None.
        """
        from .report import report_text

        data = self._lanes().report()
        return data if as_dict else report_text(data)

    def profile(self) -> Profile:
        """Return the profile of the last planned step; of two steps, where these take turns on the plan.

        Raises
        ------
        ProfileError
            There is no plan yet, or no memory for its arena.
        """
        return self._lanes().plan().profile

    def plan(self) -> Plan:
        """Return the plan that was made last.

        Raises
        ------
        ProfileError
            There is no plan yet, or no memory for its arena.
        """
        return self._lanes().plan()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the current device's plans to a file, for `load` in another run of the program.

        Raises
        ------
        PoolError
            A step key is neither None nor a string nor an integer.
        OSError
            The file cannot be written. The old one, if any, is untouched.
        """
        self._lanes().save(path, self._backend())

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str], *args: Any, **options: Any) -> Self:
        """Make a pool that starts with the plans of a file, and so without a warm-up.

        Every request is still checked against them, and every placement is validated again.

        Parameters
        ----------
        path
            What `save` wrote.
        args, options
            As for the constructor.

        Raises
        ------
        FormatError
            The file is truncated or foreign, of another version or backend, or holds an invalid plan.
        PoolError
            There is no memory for the arena.
        """
        pool = cls(*args, **options)
        pool._lanes().load(path, pool._backend())
        return pool


class EnteredPool(Enterable, Pool):
    """A pool that serves while it is entered: ``with pool:``.

    Entering and leaving are one compiled call each, so that a signal's exception leaves the pool entered or not.
    """

    _enter: Callable[[], object]
    _leave: Callable[[], object]

    def _before_leaving(self, error: BaseException | None) -> None:
        """Have an error of a request that found no memory tell what fills it, and end the steps that were told."""
        if error is not None and self._is_out_of_memory(error):
            self._lanes().diagnose(error)
        self._end_told()

    def _end_told(self) -> None:
        self._told.end()

    def serving(self) -> AbstractContextManager[Any]:
        """Return a context manager in which the pool serves this thread: itself, or nothing where it does already."""
        return nullcontext() if self._serves_here() else self
