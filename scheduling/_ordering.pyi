"""Binding of the solvers for the order of operators; the GIL is released while solving, and taken to report."""

from collections.abc import Callable, Sequence

from .graph import IntArray

SOLVERS: dict[str, int]
FOUND_BY: tuple[str, ...]

def solve(
    solver: str,
    extra: Sequence[int],
    before: Sequence[Sequence[int]],
    size: Sequence[int],
    kept: Sequence[bool],
    writers: Sequence[Sequence[int]],
    users: Sequence[Sequence[int]],
    time_limit: float | None,
    progress: Callable[[int, int], object] | None,
) -> tuple[IntArray, int, str, int, bool]:
    """Order n operators with ``extra`` workspace, each after those ``before`` it, over m storages.

    Returns the order (n,), the lower bound, the solver that found it, the sets of operators looked at, and
    whether Ctrl-C ended it.
    ``progress(peak, lower_bound)`` is called several times a second; the search stops where it returns False.
    """
