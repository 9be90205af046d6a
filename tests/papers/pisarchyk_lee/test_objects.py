import numpy as np
import pytest
from hypothesis import given, settings

from stowplan.errors import UnsupportedConstraintError
from stowplan.packing import Problem, check, pack
from stowplan.packing.problem import changed
from stowplan.papers.pisarchyk_lee.objects import (
    lower_bound,
    objects_by_size,
    objects_min_cost_flow,
    strategies,
)

from ...packing.problems import data, problems
from ...packing.reference.greedy import rectangles

GREEDY = [name for name in strategies if name != "objects_min_cost_flow"]


def meet(a, b):
    return any(s < f and t < e for s, e, *_ in a for t, f, *_ in b)


def check_shared(problem, shared):
    """No two blocks of an object meet; an object is as large as its largest block; the offsets are a placement."""
    pieces = rectangles(problem)
    n = len(problem)
    for i in range(n):
        for j in range(i):
            assert shared.object[i] != shared.object[j] or not meet(pieces[i], pieces[j])
    for k, size in enumerate(shared.size.tolist()):
        assert size == problem.size[shared.object == k].max()
    assert sorted(set(shared.object.tolist())) == list(range(len(shared.size)))
    assert shared.total >= shared.lower_bound == lower_bound(problem)
    check(problem, shared.offsets(problem))
    if (problem.alignment == 1).all() and n:
        assert (shared.offsets(problem) + problem.size).max() <= shared.total


@pytest.mark.parametrize("name", GREEDY)
@settings(settings.get_profile("usual"))
@given(problem=problems())
def test_no_two_blocks_of_an_object_meet(name, problem):
    problem = changed(problem, fixed=None)
    check_shared(problem, strategies[name](problem))


@settings(settings.get_profile("usual"))
@given(problems(plain=True))
def test_the_flow_is_a_solution(problem):
    pytest.importorskip("scipy", reason="SciPy is not installed; expected: pip install 'stowplan[flow]'")
    check_shared(problem, objects_min_cost_flow(problem))


def test_the_strategies_are_packing_solvers():
    problem = data("deeplab_v3")
    assert pack(problem, "objects_by_size").peak == objects_by_size(problem).total
    rows = np.arange(1_001)
    with pytest.raises(UnsupportedConstraintError, match="1,001 blocks; shared objects take 1,000"):
        pack(Problem(rows, rows, rows + 1), "objects_by_size")


def test_the_flow_minimises_the_growth():
    # c could follow a (grows by 4) or b (grows by 1); d follows the other.
    pytest.importorskip("scipy", reason="SciPy is not installed; expected: pip install 'stowplan[flow]'")
    problem = Problem([4, 7, 8, 4], [0, 0, 5, 5], [5, 5, 9, 9])
    assert objects_min_cost_flow(problem).object.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("name", strategies)
@pytest.mark.parametrize("columns", [{"fixed": [0, -1]}, {"apart": [[0, 1]]}, {"contiguous": [[0, 1]]}])
def test_what_cannot_be_honoured_is_refused(name, columns):
    if name == "objects_min_cost_flow":
        pytest.importorskip("scipy", reason="SciPy is not installed; expected: pip install 'stowplan[flow]'")
    with pytest.raises(UnsupportedConstraintError, match="shared objects cannot honour"):
        strategies[name](Problem([4, 4], [0, 5], [5, 9], **columns))


def test_objects_are_laid_end_to_end_and_aligned():
    problem = Problem([6, 5, 3], [0, 0, 0], [9, 9, 9], alignment=[1, 4, 2])
    shared = objects_by_size(problem)
    assert shared.offsets(problem).tolist() == [0, 8, 14]
    assert np.array_equal(shared.size, [6, 5, 3])
