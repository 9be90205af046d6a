"""Sekiyama et al. 2018: the heuristic's result is the optimum for the inference of AlexNet and GoogLeNet."""

import pytest

from experiments.packing import inference
from experiments.papers import somas
from stowplan.packing import check, lower_bound, pack

OPTIMA = pytest.mark.parametrize(("network", "optimum"), [("alexnet", 10_169_344), ("googlenet", 12_202_496)])


@OPTIMA
@pytest.mark.parametrize("solver", ["best_fit", "auto"])
def test_the_published_optimum_comes_out(network, optimum, solver):
    problem = inference.NETWORKS[network]()
    placement = pack(problem, solver)
    check(problem, placement.offsets)
    assert (placement.peak, placement.status) == (optimum, "optimal")
    assert lower_bound(problem) == optimum


@pytest.mark.parametrize("name", somas.PUBLISHED)
def test_somas_own_tensors_are_at_the_bound(name):
    assert pack(somas.published(name)).optimal
