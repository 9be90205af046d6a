"""Sekiyama et al. 2018: the heuristic's result is the optimum for the inference of AlexNet and GoogLeNet."""

import numpy as np
import pytest

from experiments.packing import inference
from stowplan.packing import Problem, _solvers, check, lower_bound, pack
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


def test_layers_have_the_sizes_of_the_papers():
    def rounded(*shape):
        return -(-4 * int(np.prod(shape)) // 512) * 512

    alexnet: Problem = inference.alexnet()
    for shape in (
        (3, 227, 227),
        (96, 55, 55),
        (96, 27, 27),
        (256, 27, 27),
        (384, 13, 13),
        (256, 6, 6),
        (4096,),
    ):
        assert rounded(*shape) in alexnet.size
    googlenet: Problem = inference.googlenet()
    for shape in (
        (64, 112, 112),
        (192, 56, 56),
        (480, 28, 28),
        (832, 14, 14),
        (1024, 7, 7),
        (1024,),
        (1000,),
    ):
        assert rounded(*shape) in googlenet.size
    assert (googlenet.size == 8 * 2**20).sum() == 3 + 6 * 9
