"""What was learned of a function: the laws of its moments, the runs that met them, and those that did not.

::

    met          (50, 80)   (3_000, 5_000)   (72, 900_000)         largest runs, in each direction
    missed       (400_000, 72)                                     the laws do not tell of as long ones, or longer
    asked        (20_000, 30_000)                                  40 times the bytes of any run: extrapolated

"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .arguments import Lengths
from .laws import Laws
from .moments import NOTHING, Moment

__all__ = ["Model", "Tried", "is_within"]

NO_LENGTHS = Lengths((), ())


class Tried(NamedTuple):
    """A run: its lengths, and the bytes of the arguments and of what it had alive besides them."""

    lengths: tuple[int, ...]
    given: int
    live: int


@dataclass(frozen=True, eq=False)
class Model:
    """What a function needs as a function of lengths: all that may be the fullest moment. Made by `learn`.

    With a reason in ``cannot_tell`` the moments are those that follow a law, maybe none.
    """

    lengths: Lengths = NO_LENGTHS
    names: tuple[str, ...] = ()
    moments: tuple[Moment, ...] = ()
    below: tuple[tuple[int, int], ...] = ()
    """Pairs of lengths: the first was the smaller one in all runs."""
    base: tuple[int, ...] = ()
    """The lengths of the smallest run on which laws are."""
    least_bytes: int = 0
    """Bytes of its arguments."""
    met: tuple[Tried, ...] = ()
    """Runs that the laws met: of each direction the largest."""
    missed: tuple[Tried, ...] = ()
    """Larger runs that they did not meet."""
    only_equal: bool = False
    """Whether the function follows a law only where the axes of a length are equal, and takes others."""
    runs: int = 0
    seconds: float = 0.0
    cannot_tell: str = ""

    @classmethod
    def read(cls, kept: dict[str, Any]) -> Model:
        """Return a model that was kept as JSON."""
        found = {name: _tuples(value) for name, value in kept.items()}
        moments = tuple(Moment(_laws(laws), lines, rounds) for laws, lines, rounds in found.pop("moments"))
        found |= {name: tuple(Tried(*one) for one in found[name]) for name in ("met", "missed")}
        return cls(lengths=Lengths(**found.pop("lengths")), moments=moments, **found)

    def fullest(self, lengths: Sequence[int]) -> Moment:
        """Return the moment with most bytes alive at some lengths."""
        return max(self.moments, key=lambda moment: moment.at(lengths)[0], default=NOTHING)

    def is_small(self, lengths: Sequence[int], given: int) -> bool:
        """Whether a run is smaller than those on which laws are."""
        pairs = enumerate(zip(lengths, self.base, strict=True))
        return bool(lengths) and all(
            n <= least or (given < self.least_bytes and not self.lengths.is_number(k))
            for k, (n, least) in pairs
        )

    def largest_run(self) -> int:
        """Return the bytes of the largest run that met the laws, its arguments included."""
        return max((one.given + one.live for one in self.met), default=0)

    def beyond(self, lengths: Sequence[int], total: int) -> float:
        """Return how many times longer than in any run a length is, or larger than any run the peak."""
        longest = [max(column) for column in zip(*(one.lengths for one in self.met), strict=True)]
        times = [n / most for n, most in zip(lengths, longest, strict=True)]
        return max([*times, total / max(self.largest_run(), 1)], default=0.0)

    def doubt(self, lengths: Sequence[int]) -> tuple[str, int]:
        """Tell why the laws do not tell of some lengths, empty if they do; and the most bytes that are sure then."""
        for small, large in self.below:
            if lengths[small] > lengths[large]:
                pair = f"{self.names[small]} is above {self.names[large]}, and was below it in all runs"
                return f"{pair}; give an example in which it is above", 0
        if not self.missed or (
            any(is_within(lengths, one.lengths) for one in self.met)
            and not any(is_within(one.lengths, lengths) for one in self.missed)
        ):
            return "", 0
        one = min(self.missed, key=lambda one: (not is_within(one.lengths, lengths), one.given + one.live))
        at = ", ".join(f"{name} = {n:,}" for name, n in zip(self.names, one.lengths, strict=True))
        law = self.fullest(one.lengths).at(one.lengths)[0]
        return (
            f"its laws do not hold: at {at} it had {one.live:,} bytes alive, where they have {law:,}",
            one.live if is_within(one.lengths, lengths) else 0,
        )


def is_within(lengths: Sequence[int], others: Sequence[int]) -> bool:
    """Whether no length is above the other's."""
    return all(n <= most for n, most in zip(lengths, others, strict=True))


def _laws(kept: dict[str, Any]) -> Laws:
    rows = np.array(kept["factors"], dtype=object).reshape(-1, len(kept["powers"]))
    return Laws(kept["powers"], rows, kept["below"])


def _tuples(value: Any) -> Any:
    """Return a value of JSON with tuples for its lists."""
    if isinstance(value, dict):
        return {name: _tuples(one) for name, one in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
