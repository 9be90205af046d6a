from itertools import pairwise

import numpy as np
from hypothesis import given, settings

from stowplan.packing import Problem, check, lower_bound, pack
from stowplan.packing.components import by_component, components, restricted
from stowplan.packing.registry import Answer, PackingOptions

from .problems import problems


@settings(settings.get_profile("usual"))
@given(problems())
def test_parts_follow_each_other_and_none_can_be_cut(problem):
    pieces = problem.pieces()
    spans = []
    for rows in components(problem):
        assert rows.tolist() == sorted(set(rows.tolist()))
        spans.append((min(pieces.start[pieces.first[rows]]), max(pieces.end[pieces.first[rows + 1] - 1])))
        for tick in range(spans[-1][0] + 1, spans[-1][1]):
            inside = [
                pieces.start[pieces.first[i]] < tick < pieces.end[pieces.first[i + 1] - 1] for i in rows
            ]
            assert any(inside)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    occupied = np.flatnonzero(np.diff(pieces.first)).tolist()
    assert sorted(i for rows in components(problem) for i in rows.tolist()) == occupied


@settings(settings.get_profile("usual"))
@given(problems())
def test_parts_packed_alone_are_a_placement_of_the_whole(problem):
    offsets = np.maximum(problem.fixed, 0)
    for rows in components(problem):
        offsets[rows] = pack(restricted(problem, rows), "best_fit").offsets
    check(problem, offsets)


def test_the_lower_bound_of_a_part_is_one_of_the_whole():
    # Two blocks of 1 byte at multiples of 2 need 3 bytes; the odd one later hides that from the bound of the whole.
    problem = Problem([1, 1, 1], [0, 0, 5], [5, 5, 9], alignment=[2, 2, 1])
    assert lower_bound(problem) == 2
    solver = by_component(lambda part, options: Answer(None, 0))
    assert solver(problem, PackingOptions(incumbent=np.array([0, 2, 0]), target=2)).lower_bound == 3


def test_a_part_s_own_bound_counts():
    """It may be more than the whole's: the alignment of a block that occupies nothing is left out."""
    problem = Problem([1, 0, 1], [0, 0, 0], [1, 1, 1], alignment=[2, 1, 2])
    assert lower_bound(problem) == 2
    for solver in ("exact", "search"):
        placement = pack(problem, solver)
        assert (placement.peak, placement.lower_bound) == (3, 3)
