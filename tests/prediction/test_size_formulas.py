"""Formulas against polynomials with the same coefficients, evaluated plainly."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.prediction.size_formulas import Grid


@st.composite
def polynomials(draw: st.DrawFn) -> tuple[Grid, dict[tuple[int, ...], int]]:
    lengths = draw(st.integers(1, 4))
    axis = st.lists(st.integers(1, 400), min_size=lengths, max_size=lengths).map(tuple)
    grid = Grid(draw(axis), draw(axis), draw(st.integers(1, 3)))
    terms = st.dictionaries(st.sampled_from(grid.steps), st.integers(-50, 10**6), max_size=5)
    return grid, draw(terms)


def value(terms: dict[tuple[int, ...], int], lengths: tuple[int, ...]) -> int:
    return sum(
        factor * math.prod(n**power for n, power in zip(lengths, powers, strict=True))
        for powers, factor in terms.items()
    )


@given(polynomials(), st.lists(st.integers(0, 10**7), min_size=4, max_size=4))
def test_formulas_are_the_polynomials(
    polynomial: tuple[Grid, dict[tuple[int, ...], int]], far: list[int]
) -> None:
    grid, terms = polynomial
    formulas = grid.fit([[value(terms, point) for point in grid.points], [7] * len(grid.points)])
    lengths = tuple(far[: len(grid.base)])
    assert formulas.at(lengths).tolist() == [value(terms, lengths), 7]
    assert formulas.terms(0) == {powers: Fraction(factor) for powers, factor in terms.items() if factor}


@pytest.mark.parametrize(("length", "bytes_"), [(13, 7), (14, 7), (10**9 + 1, 5 * 10**8 + 1)])
def test_a_formula_rounds_up(length: int, bytes_: int) -> None:
    assert Grid((12,), (12,), 1).fit([6, 12]).at([length])[0] == bytes_


def test_no_length_is_a_constant() -> None:
    assert Grid((), (), 0).fit([42]).at(()).tolist() == [42]
