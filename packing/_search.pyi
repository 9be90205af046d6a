"""Binding of `window_repair`, `by_conflicts`, `search` and the two decoders below them; solving releases the GIL."""

from collections.abc import Callable, Sequence

from .problem import IntArray, Problem

class Cancel:
    """A flag that any thread may set while a solver runs: it then stops with the best placement so far."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...

def window_repair(
    problem: Problem,
    *,
    time_limit: float | None = None,
    effort: int = 0,
    seed: int = 0,
    cancel: Cancel | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> IntArray | None:
    """Offsets (n,) by a skyline and window repair. ``effort``: blocks placed at most, 0 for the default."""

def by_conflicts(
    problem: Problem,
    *,
    time_limit: float | None = None,
    effort: int = 0,
    cancel: Cancel | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> IntArray | None:
    """Offsets (n,) by first fit on the conflict graph. ``effort``: neighbours looked at, 0 for the default."""

def search(
    problem: Problem,
    *,
    time_limit: float | None = None,
    effort: int = 0,
    seed: int = 0,
    threads: int = 1,
    cancel: Cancel | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> IntArray | None:
    """Offsets (n,) by beams of growing width. ``effort``: rounds at most, 0 for the default."""

def refill(
    problem: Problem,
    order: IntArray,
    worth: Sequence[float],
    reach: int,
    obstacles: IntArray,
    limit: int | None = None,
) -> dict[int, int] | None:
    """Stack the rows in ``order``, by ``worth`` x fit, around obstacles (k, 4): start, end, lower, upper.

    The rows must be plain: no gaps, not fixed, size 1 or more. Worths are greater than 0. Returns offsets by row, or
    None if one would end above ``limit``.
    """

def beam(
    problem: Problem,
    order: IntArray,
    obstacles: IntArray,
    *,
    width: int,
    branch: int,
    foot: float,
    power: int,
    limit: int | None = None,
) -> dict[int, int] | None:
    """As `refill`, by one beam, ``order`` from preferred to not; None if no state stays at or below ``limit``."""
