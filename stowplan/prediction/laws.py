"""Laws: bytes as exact functions of lengths, from a few of their values.

An array's size is a product of lengths, so the bytes alive at a moment are a polynomial of them. Its values on a
lattice determine it, by Newton's forward differences: C(k + d, d) points for total degree d in k lengths, and those
for the product of all of them::

    x[1]                                    differences of a row     8     24    48    80
      |  .                                                             16    24    32
      |  .  .             degree 3,                                        8     8
      |  .  .  .          10 points                                           0
      |  .  .  .  .                         8 + 16 t + 8 t (t - 1) / 2,  t = (x - base) / step
      +--------------- x[0]

Differences of whole numbers are whole numbers, and so is every sum here until the last division, which rounds up.
O(points) for each law and value. Of a number of a step that divides blocks (ranks), sizes are powers: `Products`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Grid", "Laws", "Products"]


@dataclass(frozen=True)
class Grid:
    """The lattice of points that determines a polynomial.

    Attributes
    ----------
    base, step
        Of each length: its value at the first point, and the distance to the next.
    degree
        Total degree of the polynomials; products of different lengths are always among their terms.
    """

    base: tuple[int, ...]
    step: tuple[int, ...]
    degree: int

    @functools.cached_property
    def steps(self) -> tuple[tuple[int, ...], ...]:
        """Each point as numbers of steps from the first, which is (0, ..., 0)."""
        every = itertools.product(range(self.degree + 1), repeat=len(self.base))
        return tuple(
            sorted(
                (p for p in every if sum(p) <= self.degree or max(p, default=0) == 1),
                key=lambda p: (sum(p), p),
            )
        )

    @property
    def points(self) -> list[tuple[int, ...]]:
        """The points at which values are needed, in order."""
        return [
            tuple(base + step * n for base, step, n in zip(self.base, self.step, point, strict=True))
            for point in self.steps
        ]

    def fit(self, values: Any) -> Laws:
        """Find the laws of many quantities at once.

        Parameters
        ----------
        values
            Whole numbers (quantities, points).
        """
        known = np.array(values, dtype=object).reshape(-1, len(self.steps))
        differences = np.zeros_like(known)
        row = {point: k for k, point in enumerate(self.steps)}
        for point, k in row.items():
            for other in itertools.product(*(range(n + 1) for n in point)):
                times = math.prod(math.comb(n, m) for n, m in zip(point, other, strict=True))
                sign = (-1) ** (sum(point) - sum(other))
                differences[:, k] += sign * times * known[:, row[other]]
        return Laws(self, differences)


@dataclass(frozen=True, eq=False)
class Laws:
    """Quantities as polynomials of lengths. Made by `Grid.fit`.

    Attributes
    ----------
    grid
        Where they were learnt.
    differences
        Newton's, whole numbers of any length (quantities, points).
    """

    grid: Grid
    differences: npt.NDArray[Any]

    def at(self, lengths: Sequence[int]) -> npt.NDArray[Any]:
        """Return the quantities at some lengths, whole numbers of any length (quantities,), rounded up."""
        weights = [
            math.prod(
                (_choose(t, n) for t, n in zip(self._steps(lengths), point, strict=True)), start=Fraction(1)
            )
            for point in self.grid.steps
        ]
        below = math.lcm(*(weight.denominator for weight in weights))
        above = np.array([int(weight * below) for weight in weights], dtype=object)
        return np.asarray(-(-(self.differences * above).sum(axis=1) // below))

    def _steps(self, lengths: Sequence[int]) -> list[Fraction]:
        return [
            Fraction(length - base, step)
            for length, base, step in zip(lengths, self.grid.base, self.grid.step, strict=True)
        ]

    def terms(self, row: int) -> dict[tuple[int, ...], Fraction]:
        """Return a law's coefficients by the powers of the lengths, without those that are 0."""
        found: dict[tuple[int, ...], Fraction] = {}
        for point, times in zip(self.grid.steps, self.differences[row].tolist(), strict=True):
            product = {(0,) * len(point): Fraction(times)}
            for axis, (base, step, n) in enumerate(zip(self.grid.base, self.grid.step, point, strict=True)):
                for i in range(n):  # times (x - base - i step) / (step (i + 1))
                    grown: dict[tuple[int, ...], Fraction] = {}
                    for powers, factor in product.items():
                        share = factor / (step * (i + 1))
                        up = (*powers[:axis], powers[axis] + 1, *powers[axis + 1 :])
                        grown[up] = grown.get(up, Fraction(0)) + share
                        grown[powers] = grown.get(powers, Fraction(0)) - share * (base + i * step)
                    product = grown
            for powers, factor in product.items():
                found[powers] = found.get(powers, Fraction(0)) + factor
        return {powers: factor for powers, factor in found.items() if factor}

    def formula(self, row: int, names: Sequence[str]) -> str:
        """Return a law as text, the highest powers first."""
        terms = self.terms(row)
        ordered = sorted(terms, key=lambda powers: (-sum(powers), tuple(-p for p in powers)))
        return " + ".join(_term(terms[powers], powers, names) for powers in ordered) or "0"


@dataclass(frozen=True, eq=False)
class Products:
    """Quantities as products of powers of lengths, from their values at known ones.

    Attributes
    ----------
    known, values
        The lengths, and the quantities there, whole numbers (quantities,).
    powers
        Whole, by length and quantity (lengths, quantities).
    """

    known: Sequence[int]
    values: npt.NDArray[Any]
    powers: npt.NDArray[Any]

    def at(self, lengths: Sequence[int]) -> npt.NDArray[Any]:
        """Return the quantities at some lengths, whole numbers of any length (quantities,), rounded up."""
        above = self.values.astype(object)
        below = np.ones(len(above), dtype=object)
        for new, old, powers in zip(lengths, self.known, self.powers.astype(object), strict=True):
            above = above * new ** np.maximum(powers, 0) * old ** np.maximum(-powers, 0)
            below = below * old ** np.maximum(powers, 0) * new ** np.maximum(-powers, 0)
        return np.asarray(-(-above // below))


def _choose(t: Fraction, n: int) -> Fraction:
    """Return t (t - 1) ... (t - n + 1) / n!."""
    return math.prod((t - i for i in range(n)), start=Fraction(1)) / math.factorial(n)


def _term(factor: Fraction, powers: tuple[int, ...], names: Sequence[str]) -> str:
    pairs = zip(names, powers, strict=True)
    product = " ".join(name if power == 1 else f"{name}^{power}" for name, power in pairs if power)
    number = f"{factor.numerator:,}" if factor.denominator == 1 else f"{float(factor):,.6g}"
    return f"{number} {product}".strip()
