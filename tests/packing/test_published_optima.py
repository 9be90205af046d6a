"""Sekiyama et al. 2018: the heuristic's result is the optimum for the inference of AlexNet and GoogLeNet."""

import numpy as np
import pytest

from experiments.packing import inference
from stowplan.packing import _solvers, check, lower_bound, pack
from stowplan.packing.placement import peak_of
from stowplan.packing.registry import PackingOptions

OPTIMA = pytest.mark.parametrize(("network", "optimum"), [("alexnet", 10_169_344), ("googlenet", 12_202_496)])


@OPTIMA
@pytest.mark.parametrize("solver", ["best_fit", "auto"])
def test_the_published_optimum_comes_out(network, optimum, solver):
    problem = inference.NETWORKS[network]()
    placement = pack(problem, solver)
    check(problem, placement.offsets)
    assert (placement.peak, placement.status) == (optimum, "optimal")
    assert lower_bound(problem) == optimum


@OPTIMA
@pytest.mark.filterwarnings("ignore::DeprecationWarning:pulp")
def test_the_program_finds_it_from_a_worse_start(network, optimum):
    pytest.importorskip("pulp", reason="PuLP is not installed; expected: pip install 'stowplan[mip]'")
    from stowplan.packing.solvers.mip import mip

    problem = inference.NETWORKS[network]()
    assert pack(problem, "mip").peak == optimum
    start = _solvers.greedy(problem, np.arange(len(problem)))
    if network == "alexnet":
        start = np.concatenate([[0], np.cumsum(problem.size)[:-1]])
    answer = mip(problem, PackingOptions(time_limit=120, incumbent=start))
    check(problem, answer.offsets)
    assert peak_of(problem, answer.offsets) == optimum
