import sys

import numpy as np
import pytest
from hypothesis import given, settings

from stowplan.errors import MissingDependencyError, UnsupportedConstraintError
from stowplan.packing import Problem, check
from stowplan.packing.papers.objects import (
    lower_bound,
    objects_by_size,
    objects_in_order,
    objects_min_cost_flow,
    positional_maxima,
    strategies,
)

from ..problems import data, inclusive, problems
from ..reference.greedy import rectangles

GREEDY = [name for name in strategies if name != "objects_min_cost_flow"]


def free_for_all(problem):
    """The same blocks without fixed offsets."""
    return Problem(problem.size, problem.start, problem.end, gaps=problem.gaps, alignment=problem.alignment)


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
    problem = free_for_all(problem)
    check_shared(problem, strategies[name](problem))


@settings(settings.get_profile("usual"))
@given(problems(plain=True))
def test_the_flow_is_a_solution(problem):
    pytest.importorskip("scipy", reason="SciPy is not installed; expected: pip install 'stowplan[flow]'")
    check_shared(problem, objects_min_cost_flow(problem))


@settings(settings.get_profile("usual"))
@given(problems())
def test_positional_maxima_equal_their_definition(problem):
    pieces = rectangles(problem)
    expected: list[int] = []
    for tick in {start for mine in pieces for start, *_ in mine}:
        live = sorted(
            (int(problem.size[i]) for i, mine in enumerate(pieces) for s, e, *_ in mine if s <= tick < e),
            reverse=True,
        )
        expected += [0] * (len(live) - len(expected))
        expected[: len(live)] = [max(a, b) for a, b in zip(expected, live, strict=False)]
    assert positional_maxima(problem) == expected


@settings(settings.get_profile("usual"))
@given(problems())
def test_greedies_equal_their_definitions(problem):
    problem = free_for_all(problem)
    pieces = rectangles(problem)
    orders = {
        objects_by_size: sorted(range(len(problem)), key=lambda i: (-problem.size[i], i)),
        objects_in_order: sorted(range(len(problem)), key=lambda i: (problem.start[i], i)),
    }
    for strategy, order in orders.items():
        made: list[list[int]] = []
        for i in order:
            free = [m for m in made if not any(meet(pieces[i], pieces[j]) for j in m)]
            size = {id(m): max(problem.size[j] for j in m) for m in free}
            if strategy is objects_in_order:  # the smallest that is large enough, else the largest
                free.sort(key=lambda m: (size[id(m)] < problem.size[i], abs(size[id(m)] - problem.size[i])))
            if free:
                free[0].append(i)
            else:
                made.append([i])
        expected = [next(k for k, m in enumerate(made) if i in m) for i in range(len(problem))]
        assert strategy(problem).object.tolist() == expected


@pytest.mark.parametrize("name", strategies)
def test_tflite_chain(name):
    if name == "objects_min_cost_flow":
        pytest.importorskip("scipy", reason="SciPy is not installed; expected: pip install 'stowplan[flow]'")
    shared = strategies[name](inclusive((16, 0, 1), (8, 1, 2), (64, 2, 3), (32, 3, 4), (8, 4, 5)))
    assert sorted(shared.size.tolist()) == [32, 64]


@pytest.mark.parametrize(
    ("model", "by_size", "in_order", "bound"),
    [
        ("mobilenet_v1", "4.594", "4.594", "4.594"),
        ("mobilenet_v2", "7.178", "8.039", "6.604"),
        ("deeplab_v3", "6.437", "7.168", "6.105"),
    ],
)
def test_pisarchyk_and_lee_table_1(model, by_size, in_order, bound):
    problem = data(model)
    figures = (objects_by_size(problem).total, objects_in_order(problem).total, lower_bound(problem))
    assert tuple(f"{f / 2**20:.3f}" for f in figures) == (by_size, in_order, bound)


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


def test_the_flow_refuses_gaps():
    pytest.importorskip("scipy", reason="SciPy is not installed; expected: pip install 'stowplan[flow]'")
    with pytest.raises(UnsupportedConstraintError, match="cannot honour gaps"):
        objects_min_cost_flow(Problem([4], [0], [9], gaps=[[0, 2, 3]]))


def test_without_scipy_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'stowplan\[flow\]'"):
        objects_min_cost_flow(Problem([4], [0], [9]))


def test_objects_are_laid_end_to_end_and_aligned():
    problem = Problem([6, 5, 3], [0, 0, 0], [9, 9, 9], alignment=[1, 4, 2])
    shared = objects_by_size(problem)
    assert shared.offsets(problem).tolist() == [0, 8, 14]
    assert np.array_equal(shared.size, [6, 5, 3])
