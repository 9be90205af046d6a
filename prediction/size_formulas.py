"""Formulas: bytes as exact functions of lengths, from a few of their values.

A formula is a sum of products of powers of lengths. An array's size is a product of lengths, so the bytes alive at a
moment are a polynomial of them. Its values on a lattice determine it: C(k + d, d) points for total degree d in k
lengths, and those for the product of all of them::

    x[1]
      |  .
      |  .  .             degree 3, 10 points: the powers of their terms are the points' numbers of steps
      |  .  .  .          1  x[0]  x[1]  x[0]^2  x[0] x[1]  ...
      |  .  .  .  .
      +--------------- x[0]

Values, powers and factors are whole numbers or fractions of them, never rounded until the end, which rounds up.
O(points) for each formula and value.
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

Powers = tuple[int, ...]


@dataclass(frozen=True)
class Grid:
    """The lattice of points that determines a polynomial.

    Attributes
    ----------
    base, step
        The value of each length at the first point, and the distance to the next.
    degree
        Total degree of the polynomials; products of different lengths are always among their terms.
    """

    base: tuple[int, ...]
    step: tuple[int, ...]
    degree: int

    @functools.cached_property
    def steps(self) -> tuple[Powers, ...]:
        """Each point as numbers of steps from the first, which is (0, ..., 0): the powers of a term, too."""
        every = itertools.product(range(self.degree + 1), repeat=len(self.base))
        wanted = (p for p in every if sum(p) <= self.degree or max(p, default=0) == 1)
        return tuple(sorted(wanted, key=lambda p: (sum(p), p)))

    @property
    def points(self) -> list[tuple[int, ...]]:
        """The points at which values are needed, in order."""
        return [
            tuple(base + step * n for base, step, n in zip(self.base, self.step, point, strict=True))
            for point in self.steps
        ]

    @functools.cached_property
    def _factors(self) -> tuple[npt.NDArray[Any], int]:
        """Whole numbers (points, terms), and what they are to be divided by: a value's share of each term's factor."""
        count = len(self.steps)
        rows = [
            [Fraction(_product(point, powers)) for powers in self.steps]
            + [Fraction(k == n) for n in range(count)]
            for k, point in enumerate(self.points)
        ]
        for k in range(count):  # Gauss and Jordan; the lattice makes every pivot other than 0
            rows[k] = [value / rows[k][k] for value in rows[k]]
            for n in range(count):
                if n != k and rows[n][k]:
                    rows[n] = [a - rows[n][k] * b for a, b in zip(rows[n], rows[k], strict=True)]
        shares = [row[count:] for row in rows]
        below = math.lcm(*(share.denominator for row in shares for share in row))
        return np.array([[int(share * below) for share in row] for row in shares], dtype=object).T, below

    def fit(self, values: Any) -> Formulas:
        """Find the formulas of many quantities at once.

        Parameters
        ----------
        values
            Whole numbers (quantities, points).
        """
        factors, below = self._factors
        return Formulas(self.steps, np.array(values, dtype=object).reshape(-1, len(factors)) @ factors, below)


@dataclass(frozen=True, eq=False)
class Formulas:
    """Quantities as sums of products of powers of lengths.

    Attributes
    ----------
    powers
        The powers of the lengths, by term.
    factors, below
        Whole numbers of any length: the terms' factors (quantities, terms), to be divided by those below, one or by
        quantity.
    """

    powers: Sequence[Powers]
    factors: npt.NDArray[Any]
    below: Any = 1

    def at(self, lengths: Sequence[int]) -> npt.NDArray[Any]:
        """Return the quantities at some lengths, whole numbers of any length (quantities,), rounded up."""
        products = [_product(lengths, powers) for powers in self.powers]
        common = math.lcm(*(product.denominator for product in products))
        whole = np.array([int(product * common) for product in products], dtype=object)
        return np.asarray(-(-(self.factors @ whole) // (self.below * common)))

    def terms(self, row: int) -> dict[Powers, Fraction]:
        """Return a polynomial's factors by the powers of the lengths, without those that are 0."""
        pairs = zip(self.powers, self.factors[row].tolist(), strict=True)
        return {powers: Fraction(factor, self.below) for powers, factor in pairs if factor}

    def formula(self, row: int, names: Sequence[str]) -> str:
        """Return a polynomial as text, the highest powers first."""
        terms = self.terms(row)
        ordered = sorted(terms, key=lambda powers: (-sum(powers), tuple(-p for p in powers)))
        return " + ".join(_term(terms[powers], powers, names) for powers in ordered) or "0"


def _product(lengths: Sequence[int], powers: Powers) -> Fraction:
    return math.prod(
        (Fraction(n) ** power for n, power in zip(lengths, powers, strict=True)), start=Fraction(1)
    )


def _term(factor: Fraction, powers: Powers, names: Sequence[str]) -> str:
    pairs = zip(names, powers, strict=True)
    product = " ".join(name if power == 1 else f"{name}^{power}" for name, power in pairs if power)
    number = f"{factor.numerator:,}" if factor.denominator == 1 else f"{float(factor):,.6g}"
    return f"{number} {product}".strip()
