"""Will it fit? One answer, `Prediction`, from two sources: a function of arrays, or recorded steps.

===============================  ==================================================================================
source                           learned from
===============================  ==================================================================================
a function (`predict`)           runs on small arrays (`functions`)
profiles of a step (`fit_steps`) each block's size at a few small batches or shapes (`profile_scaling`)
===============================  ==================================================================================

Both know formulas (`size_formulas`): bytes as functions of lengths, or of the numbers of a shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..common.errors import ProfileError
from ..common.units import human_bytes, parse_bytes

EXTRAPOLATED = 8
"""How many times beyond what was run an answer is called extrapolated."""


@dataclass(frozen=True)
class Peak:
    """What one call, or step, has alive at its fullest moment.

    Attributes
    ----------
    arguments
        Bytes of the arrays given.
    results
        Bytes of the results, and of what the call keeps.
    temporaries
        Bytes of everything else.
    lines
        Bytes by the line that asked, the most first; without the arguments.
    cannot_tell
        Why these bytes are only a lower bound, or, of a step, follow formulas that nothing has checked; empty if they
        are the peak.
    largest_run
        Of a function: bytes at the fullest moment of the largest run that met its formulas, arguments included.
    beyond
        How many times longer than in such a run a length is, or how many times as many bytes this peak has.
    """

    arguments: int
    results: int
    temporaries: int
    lines: Mapping[str, int] = field(default_factory=dict)
    cannot_tell: str = ""
    largest_run: int = 0
    beyond: float = 0.0

    @classmethod
    def of(
        cls, arguments: int, live: int, results: int, lines: Mapping[str, int], why: str = "", *run: Any
    ) -> Peak:
        """Return what has ``live`` bytes alive besides its arguments; ``run``: the largest run, and how far beyond."""
        ranked = dict(sorted(lines.items(), key=lambda item: -item[1]))
        return cls(arguments, results, live - results, ranked, why, *run)

    @property
    def doubt(self) -> str:
        """What makes it unsure, "cannot tell" or "extrapolated" and why; empty if it is sure."""
        if self.cannot_tell:
            return f"cannot tell: {self.cannot_tell}"
        if self.beyond > EXTRAPOLATED:
            return f"extrapolated, {self.beyond:,.0f} times beyond what was run"
        return ""

    @property
    def line(self) -> str:
        """The line that requested most of what is alive, besides the arguments; empty if nothing is."""
        return next(iter(self.lines), "")

    @property
    def asked(self) -> int:
        """Bytes that the call itself allocates, without the arguments."""
        return self.results + self.temporaries

    @property
    def total(self) -> int:
        """All bytes."""
        return self.arguments + self.asked

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name} {human_bytes(getattr(self, name))}" for name in ("arguments", "results", "temporaries")
        )
        most = f"; most at {self.line}" if self.line else ""
        if self.cannot_tell:
            return f"{self.doubt}; at least {human_bytes(self.total)} ({parts}{most})"
        return f"{human_bytes(self.total)} ({parts}{most})" + (f"; {self.doubt}" if self.doubt else "")


class Prediction(ABC):
    """What a function needs as a function of its arguments' shapes, or a step as one of its batch."""

    title: str

    @abstractmethod
    def peak(self, /, **shapes: Any) -> Peak:
        """Predict the fullest moment.

        Parameters
        ----------
        shapes
            For a function, by argument: a shape, a length, a pair of shape and dtype, or an array; of a number, another
            number. Otherwise it is as the example. For a step its numbers, like ``batch=64``.

        Raises
        ------
        ProfileError
            There is no such argument, a shape has another rank, axes that are one length differ, or a value that is no
            length differs from the example.
        """

    @abstractmethod
    def explain(self) -> str:
        """Return as text how it was learned, and what is alive at the fullest moment, by line."""

    @abstractmethod
    def _along(self, name: str, axis: int, shapes: Mapping[str, Any]) -> tuple[str, Callable[[int], Peak]]:
        """Return the name of a length, and the peak as a function of it."""

    def largest(self, argument: str, axis: int = 0, memory: int | str = "8 GiB", **shapes: Any) -> int | None:
        """Find the most that an axis, or a number of a step, can have, so that it fits a memory.

        Parameters
        ----------
        argument, axis
            The axis; others that are one length with it grow with it. Of a step: a number, like ``"batch"``.
        memory
            Bytes, or text such as ``"8 GiB"``.
        shapes
            The rest of the call, as for `peak`.

        Returns
        -------
        None if not even 1 fits.

        Raises
        ------
        ProfileError
            The peak follows no formula, or does not grow with this axis; or as `peak`.
        """
        most = parse_bytes(memory)
        return self._largest(argument, axis, shapes, lambda peak: peak.total <= most)

    def _largest(
        self, argument: str, axis: int, shapes: Mapping[str, Any], is_little: Callable[[Peak], bool]
    ) -> int | None:
        name, at = self._along(argument, axis, shapes)

        def fits(length: int) -> bool:
            peak = at(length)
            if peak.cannot_tell:
                raise ProfileError(f"cannot tell: {peak.cannot_tell}")
            return is_little(peak)

        found = last_that(fits, 1 << 62, start=self._least(argument))
        if found >= 1 << 62:
            raise ProfileError(f"a length of {found:,} fits, too; expected a peak that grows with {name}")
        return found or None

    def _least(self, name: str) -> int:
        """Return the length from which on formulas tell."""
        return 1


def last_that(fits: Callable[[int], bool], most: int, end: int = 0, start: int = 1) -> int:
    """Return the largest number that fits, by doubling and bisection; 0 if 1 does not, ``most`` if that does.

    ``end``: a number known not to fit; ``start``: the first that is tried.
    """
    low, high = 0, end or start
    while not end and fits(high):
        low, high = high, high * 2
        if low >= most:
            return most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
