"""Two functions of the experiment, at small shapes; the libraries of the others may not be installed."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from experiments.predict.__main__ import measure, summary, verdict
from experiments.predict.catalogue import CASES, LIBRARIES, TRAPS


def row(name: str, **at: tuple[int, ...]) -> dict[str, Any]:
    case = next(case for case in CASES if case.name == name)
    found = measure(replace(case, at=at))
    tracemalloc.stop()  # it measures in a process of its own
    return found | {"verdict": verdict(found)}


def test_a_function_is_met() -> None:
    found = row("numpy.standardize", x=(1500, 1000))
    assert found["verdict"] == "met"
    assert found["predicted"] == pytest.approx(16 * 1500 * 1000, rel=0.01)


def test_a_trap_says_that_it_cannot_tell() -> None:
    found = row("trap: data-dependent size", x=(1_000_000,))
    assert found["verdict"] == "cannot tell"
    assert (
        "for 1 the answer is *cannot tell*, with a lower bound; 0 answers are called *extrapolated*"
        in summary([found])
    )


def test_there_are_41_functions_and_ten_traps() -> None:
    assert (len(LIBRARIES), len(TRAPS)) == (41, 10)
    assert len({case.name for case in CASES}) == 51
