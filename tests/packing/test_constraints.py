import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stowplan.errors import ConflictError, ProblemError, UnsupportedConstraintError
from stowplan.packing import Problem, check, check_fast, lower_bound, lower_bound_moment, pack
from stowplan.packing.constraints import reduce
from stowplan.packing.placement import peak_of
from stowplan.packing.problem import changed

from .problems import HEURISTICS, problems

BOTH = pytest.mark.parametrize("validate", [check, check_fast])


@st.composite
def tied(draw, most=5):
    """A problem of ``problems`` with up to two ties of each kind, which may contradict each other."""
    base = draw(problems(most))
    n = len(base)
    groups = st.lists(st.integers(0, max(n - 1, 0)), min_size=2, max_size=3, unique=True)
    some = st.lists(groups, max_size=2) if n >= 3 else st.just([])
    return changed(base, apart=[pair[:2] for pair in draw(some)], contiguous=draw(some))


def accepted(problem):
    try:
        pack(problem, "best_fit")
    except (ProblemError, UnsupportedConstraintError):
        return False
    return True


def every_placement(problem, most):
    """All offsets up to ``most`` that keep alignment, fixed offsets and ties; overlaps in time are not looked at."""
    axes = [
        np.arange(0, most + 1, a) if f < 0 else np.array([f])
        for a, f in zip(problem.alignment.tolist(), problem.fixed.tolist(), strict=True)
    ]
    grid = np.stack(np.meshgrid(*axes, indexing="ij")).reshape(len(problem), -1)
    keep = np.ones(grid.shape[1], dtype=bool)
    for group in problem.contiguous:
        for i, j in itertools.pairwise(group.tolist()):
            keep &= grid[j] == grid[i] + problem.size[i]
    for i, j in problem.apart.tolist():
        disjoint = (grid[i] + problem.size[i] <= grid[j]) | (grid[j] + problem.size[j] <= grid[i])
        keep &= disjoint | (problem.size[i] == 0) | (problem.size[j] == 0)
    return grid[:, keep].T


@settings(settings.get_profile("usual"))
@given(tied())
def test_every_solver_keeps_every_tie(problem):
    assume(accepted(problem))
    for name in HEURISTICS:
        placement = pack(problem, name)
        check(problem, placement.offsets)
        assert placement.peak >= lower_bound(problem)


@settings(settings.get_profile("dear"))
@given(tied(most=3), st.integers(0, 40))
def test_equals_exhaustive_search(problem, seed):
    assume(np.isin(problem.alignment, [1, 2, 4]).all() and problem.size.sum() <= 12)
    assume(len(problem) and (problem.fixed < 6).all())
    valid = []
    for offsets in every_placement(problem, 24):
        try:
            check(problem, offsets)
        except ConflictError:
            with pytest.raises(ConflictError):
                check_fast(problem, offsets)
        else:
            check_fast(problem, offsets)
            valid.append(offsets)
    if not valid:
        assert not accepted(problem)
        return
    # A fixed block in the hole of a compound is refused although it is possible.
    try:
        reduction = reduce(problem)
        placement = pack(problem, seed=seed)
    except UnsupportedConstraintError:
        return
    least = min(peak_of(problem, offsets) for offsets in valid)
    assert lower_bound(problem) <= least <= placement.peak
    assert not placement.optimal or placement.peak == least
    # Both problems have the same placements, compounds with holes excepted.
    for offsets in valid:
        lower = np.zeros(len(reduction.problem), dtype=np.int64)
        lower[reduction.block] = offsets - reduction.shift
        assert reduction.expand(lower).tolist() == offsets.tolist()
        if reduction.exact:
            check(reduction.problem, lower)


def test_blocks_kept_apart_never_share_though_disjoint_in_time():
    problem = Problem([8, 6, 4], [0, 5, 9], [5, 9, 12], apart=[[0, 2]])
    for name in [*HEURISTICS, "auto"]:
        x = pack(problem, name).offsets
        assert x[0] + 8 <= x[2] or x[2] + 4 <= x[0]
    auto = pack(problem)
    assert (auto.peak, auto.lower_bound, auto.status) == (12, 12, "optimal")
    assert auto.witness == "two blocks that are kept apart need 12 bytes"
    assert lower_bound_moment(problem) is None


def test_the_hole_in_a_compound_costs_no_lower_bound():
    # a and c are alive at 0, b is not: their hole of 4 bytes could take d, but compounds do not offer it.
    problem = Problem([2, 4, 2, 4], [0, 5, 0, 0], [2, 9, 2, 2], contiguous=[[0, 1, 2]])
    assert lower_bound(problem) == 8
    assert not reduce(problem).exact
    placement = pack(problem)
    assert (placement.peak, placement.status) == (12, "feasible")


def test_alignment_within_a_group_lifts_all_of_it():
    problem = Problem([6, 4], [0, 0], [9, 9], alignment=[1, 4], contiguous=[[0, 1]])
    assert pack(problem).offsets.tolist() == [2, 8]
    problem = Problem([2, 5], [0, 0], [9, 9], alignment=[4, 10], contiguous=[[0, 1]])
    assert pack(problem).offsets.tolist() == [8, 10]


@pytest.mark.parametrize(
    ("ties", "message"),
    [
        ({"contiguous": [[0, 1], [1, 0]]}, r"group \[1, 0\] demands that block 0 lie 4 bytes above"),
        ({"contiguous": [[0, 1]], "alignment": [8, 8, 8]}, r"blocks \[0, 1\] cannot be: block 1 is not"),
        ({"contiguous": [[0, 1]], "fixed": [-1, 2, -1]}, r"block 1 is fixed at 2, which .* group \[0, 1\]"),
        ({"contiguous": [[2, 0], [2, 1]], "apart": [[0, 1]]}, r"blocks 0 and 1 are to lie apart, but groups"),
        ({"contiguous": [[0, 1], [0, 2]]}, r"blocks 1 and 2 conflict where the contiguous"),
        ({"apart": [[0, 1]], "fixed": [0, 2, -1]}, r"fixed offsets of blocks 0 and 1 contradict"),
        ({"apart": [[0, 1]], "contiguous": [[1, 2]], "fixed": [0, 2, -1]}, r"0 and \[1, 2\] contradict"),
    ],
)
def test_contradictions_are_named(ties, message):
    # 0 and 1 are never alive together; 2 meets both.
    with pytest.raises(ProblemError, match=message):
        pack(Problem([4, 4, 4], [0, 5, 3], [4, 9, 7], **ties))


def test_a_fixed_block_in_the_hole_of_a_group_is_refused():
    problem = Problem([2, 4, 2, 4], [0, 5, 0, 0], [2, 9, 2, 2], contiguous=[[0, 1, 2]], fixed=[0, -1, -1, 2])
    with pytest.raises(UnsupportedConstraintError, match="in the hole that a contiguous group leaves"):
        pack(problem)


@pytest.mark.parametrize(
    ("ties", "message"),
    [
        ({"apart": [[0, 3]]}, "apart names block 3; expected 0 to 2"),
        ({"apart": [[1, 1]]}, r"apart names a block twice in \[1, 1\]"),
        ({"apart": [0, 1]}, r"apart has the shape \(2,\); expected \(k, 2\)"),
        ({"contiguous": [[0, -1]]}, "contiguous names block -1"),
        ({"contiguous": [[0, 1, 0]]}, r"contiguous names a block twice in \[0, 1, 0\]"),
        ({"contiguous": [[0.5, 1]]}, "a group of contiguous holds fractions"),
    ],
)
def test_malformed_ties(ties, message):
    with pytest.raises(ProblemError, match=message):
        Problem([4, 4, 4], [0, 5, 3], [4, 9, 7], **ties)


@BOTH
@pytest.mark.parametrize(
    ("ties", "offsets", "message", "pair"),
    [
        ({"apart": [[0, 1]]}, [0, 2, 8], r"bytes \[0, 4\); block 1 .* they are apart", (0, 1)),
        ({"contiguous": [[0, 1]]}, [0, 5, 9], "at 5; expected 4, the end of block 0", (0, 1)),
    ],
)
def test_each_rule_is_named(validate, ties, offsets, message, pair):
    with pytest.raises(ConflictError, match=message) as error:
        validate(Problem([4, 4, 4], [0, 5, 3], [4, 9, 7], **ties), offsets)
    assert error.value.pair == pair


def test_ties_are_part_of_the_problem():
    problem = Problem([4, 4, 4], [0, 5, 3], [4, 9, 7], apart=[[0, 1]], contiguous=[[1, 2], [0]])
    assert repr(problem) == "Problem(3 blocks, 0 gaps, 0 fixed, 1 apart, 1 contiguous)"
    assert problem != Problem([4, 4, 4], [0, 5, 3], [4, 9, 7])
    assert not problem.apart.flags.writeable
