"""Each member of ``auto`` wins somewhere. One that wins nothing has to go (some did: docs/decisions/dropped.rst).

The cheap ones meet the bound, so that no other has to run; without one of the others a problem of its kind takes a
larger arena. ``search`` wants seconds: ``docs/results/packing.md`` has what it gains.
"""

import pytest

from experiments.packing.generate import generate
from experiments.papers.somas import forbidden_pairs
from stowplan.packing import pack, portfolio

from .problems import data, random_problem

FIRST = {"best_fit": lambda: data("mobilenet_v2"), "best_fit_orders": lambda: data("idealloc/G_1.csv")}
"""Problems of which these meet the bound."""
BETTER = {
    "by_conflicts": (lambda: forbidden_pairs(0)[0], 12_722_688),
    "peak_outward": (lambda: random_problem(3), 13_457),
    "window_repair": (lambda: generate(3000, 100), 139_686_400),
    "exact": (lambda: data("minimalloc/K.1048576.csv"), 1_048_576),
}
"""Problems that take a larger arena without these, and the arena of all."""


def test_every_member_is_here():
    assert {*portfolio.MEMBERS} == {*FIRST, *BETTER, "search"}


@pytest.mark.parametrize("name", FIRST)
def test_it_meets_the_bound_before_the_others(name):
    placement = pack(FIRST[name]())
    assert (placement.solver, placement.status) == (name, "optimal")


@pytest.mark.parametrize("name", BETTER)
def test_without_it_the_arena_is_larger(name, monkeypatch):
    problem, with_all = BETTER[name]
    every = portfolio.steps
    monkeypatch.setattr(portfolio, "steps", lambda *how: (step for step in every(*how) if step[0] != name))
    assert pack(problem()).peak > with_all


@pytest.mark.slow
@pytest.mark.parametrize("name", BETTER)
def test_the_arena_of_all_is_as_recorded(name):
    problem, with_all = BETTER[name]
    assert pack(problem()).peak == with_all
