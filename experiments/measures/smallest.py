"""The smallest amount with which something works, by bisection: each probe is a run that may take minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def smallest(
    works: Callable[[int], bool], low: int, high: int, *, share: float, guesses: Sequence[int] = ()
) -> int:
    """Return the least amount found with which something works.

    Parameters
    ----------
    works
        Whether it works with an amount. If it works with one, it should with more.
    low
        An amount with which it cannot work; is not tried.
    high
        An amount with which it should work; is raised until it does.
    share
        How far below the amount that is returned it may work as well, as a share of it.
    guesses
        Amounts to try first, in this order, where they lie within what is not known yet. Two that enclose the answer
        closely save all other probes.

    Notes
    -----
    ``log2((high - low) / (share * high))`` probes and one more, the guesses not counted.
    """
    while not works(high):
        low, high = high, high + high // 4 + 1
    for guess in guesses:
        if low < guess < high:
            low, high = (low, guess) if works(guess) else (guess, high)
    while high - low > max(1, share * high):
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high
