"""What was learned of a function: the formulas of its candidates, the runs that met them, and those that did not.

::

    met          (50, 80)   (3_000, 5_000)   (72, 900_000)         largest runs, in each direction
    missed       (400_000, 72)                                     the formulas do not tell of as long ones, or longer
    asked        (20_000, 30_000)                                  40 times the bytes of any run: extrapolated

"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .peak_candidates import NOTHING, PeakCandidate
from .shape_variables import Lengths

NO_LENGTHS = Lengths((), ())


class Tried(NamedTuple):
    """A run: its lengths, the bytes of the arguments and of what it had alive besides them.

    ``why``: that it failed, with -1 as what it had alive; or that it took memory that no array has, so many bytes
    ``beside``.
    """

    lengths: tuple[int, ...]
    given: int
    live: int
    why: str = ""
    beside: int = 0


@dataclass(frozen=True, eq=False)
class Model:
    """What a function needs as a function of lengths: all that may be the fullest moment. Made by `learn`.

    With a reason in ``cannot_tell`` the candidates are those that follow a formula, maybe none.
    """

    lengths: Lengths = NO_LENGTHS
    names: tuple[str, ...] = ()
    candidates: tuple[PeakCandidate, ...] = ()
    below: tuple[tuple[int, int], ...] = ()
    """Pairs of lengths: the first was the smaller one in all runs."""
    base: tuple[int, ...] = ()
    """The lengths of the smallest run on which formulas are."""
    least_bytes: int = 0
    """Bytes of its arguments."""
    met: tuple[Tried, ...] = ()
    """Runs that the formulas met: of each direction the largest."""
    missed: tuple[Tried, ...] = ()
    """Larger runs that they did not meet, or that failed."""
    beside: tuple[tuple[int, Tried], ...] = ()
    """By the length that grew alone: runs that took memory which no array has. It grows with that length."""
    runs: int = 0
    seconds: float = 0.0
    cannot_tell: str = ""

    def fullest(self, lengths: Sequence[int]) -> PeakCandidate:
        """Return the moment with most bytes alive at some lengths."""
        return max(self.candidates, key=lambda moment: moment.at(lengths)[0], default=NOTHING)

    def is_small(self, lengths: Sequence[int], given: int) -> bool:
        """Whether a run is smaller than those on which formulas are."""
        pairs = enumerate(zip(lengths, self.base, strict=True))
        return bool(lengths) and all(
            n <= least or (given < self.least_bytes and not self.lengths.is_number(k))
            for k, (n, least) in pairs
        )

    def largest_run(self) -> int:
        """Return the bytes of the largest run that met the formulas, its arguments included."""
        return max((one.given + one.live for one in self.met), default=0)

    def beyond(self, lengths: Sequence[int], total: int) -> float:
        """Return how many times longer than in any run a length is, or larger than any run the peak."""
        longest = [max(column) for column in zip(*(one.lengths for one in self.met), strict=True)]
        times = [n / most for n, most in zip(lengths, longest, strict=True)]
        return max([*times, total / max(self.largest_run(), 1)], default=0.0)

    def doubt(self, lengths: Sequence[int], total: int) -> tuple[str, int]:
        """Tell why the formulas do not tell of some lengths, empty if they do; and the most bytes that are sure then.

        ``total``: bytes by the formulas, arguments included.
        """
        for small, large in self.below:
            if lengths[small] > lengths[large]:
                pair = f"{self.names[small]} is above {self.names[large]}, and was below it in all runs"
                return f"{pair}; give an example in which it is above", 0
        for k, one in self.beside:
            if one.beside * lengths[k] * 50 > one.lengths[k] * total:
                return f"at {self._named(one.lengths)} {one.why}", total  # its arrays' formulas hold
        above = [one for one in self.missed if is_within(one.lengths, lengths)]
        others = [one for one in self.missed if one.live >= 0]
        if any(is_within(lengths, one.lengths) for one in self.met):
            others = []
        if not above and not others:
            return "", 0
        one = min(above or others, key=lambda one: one.given + one.live)
        at = self._named(one.lengths)
        if one.live < 0:
            return f"at {at} {one.why}", 0
        formula = self.fullest(one.lengths).at(one.lengths)[0]
        return (
            f"its formulas do not hold: at {at} it had {one.live:,} bytes alive, where they have {formula:,}",
            one.live if above else 0,
        )

    def _named(self, lengths: Sequence[int]) -> str:
        return ", ".join(f"{name} = {n:,}" for name, n in zip(self.names, lengths, strict=True))


def is_within(lengths: Sequence[int], others: Sequence[int]) -> bool:
    """Whether no length is above the other's."""
    return all(n <= most for n, most in zip(lengths, others, strict=True))
