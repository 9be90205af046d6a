import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import ConflictError, ProblemError
from stowplan.packing import Problem, check, check_fast

from .problems import problems

BOTH = pytest.mark.parametrize("validate", [check, check_fast])


def cells(problem, offsets, i):
    """Every (tick, byte) that a block occupies, one by one."""
    gaps = [g for g in problem.gaps.tolist() if g[0] == i]
    occupied = set()
    for tick in range(problem.start[i], problem.end[i]):
        low, high = 0, int(problem.size[i])
        for _, t0, t1, w0, w1 in gaps:
            if t0 <= tick < t1:
                low, high = w0, w1
        occupied |= {(tick, int(offsets[i]) + byte) for byte in range(low, high)}
    return occupied


@settings(settings.get_profile("cheap"))
@given(problems(most=6), st.data())
def test_both_agree_with_sets_of_cells(problem, draws):
    n = len(problem)
    offsets = np.array(draws.draw(st.lists(st.integers(0, 30), min_size=n, max_size=n)), dtype=np.int64)
    offsets = np.where(problem.fixed >= 0, problem.fixed, offsets - offsets % problem.alignment)
    occupied = [cells(problem, offsets, i) for i in range(n)]
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if occupied[i] & occupied[j]]
    if not pairs:
        check(problem, offsets)
        check_fast(problem, offsets)
        return
    with pytest.raises(ConflictError) as first:
        check(problem, offsets)
    assert first.value.pair == pairs[0]
    with pytest.raises(ConflictError) as some:
        check_fast(problem, offsets)
    assert some.value.pair in pairs


@BOTH
def test_the_message_has_both_lifetimes_and_address_ranges(validate):
    problem = Problem([4, 8], [0, 2], [3, 9], id=["conv", "relu"])
    with pytest.raises(ConflictError) as error:
        validate(problem, [10, 12])
    assert error.value.pair == (0, 1)
    assert str(error.value) == (
        "conflict: block 0 (conv), alive in [0, 3), occupies bytes [10, 14); "
        "block 1 (relu), alive in [2, 9), occupies bytes [12, 20)"
    )


@BOTH
@pytest.mark.parametrize(
    ("options", "offset", "message"),
    [
        ({}, -1, r"block 1 is placed at -1; expected 0 or more"),
        ({"alignment": 4}, 6, r"block 1 is placed at 6; expected a multiple of its alignment 4"),
        ({"fixed": [-1, 8]}, 12, r"block 1 is placed at 12; it is fixed at 8"),
        ({}, 2**63 - 1, r"its end exceeds 64-bit"),
    ],
)
def test_rules_that_a_block_breaks_alone(validate, options, offset, message):
    with pytest.raises(ConflictError, match=message) as error:
        validate(Problem([4, 4], [0, 9], [5, 20], **options), [0, offset])
    assert error.value.pair == (1, 1)


@BOTH
@pytest.mark.parametrize("offsets", [[0], [0, 0, 0], [0.0, 4.0], [[0, 4]]])
def test_offsets_must_be_n_integers(validate, offsets):
    with pytest.raises(ProblemError, match="expected integers"):
        validate(Problem([4, 4], [0, 0], [3, 3]), offsets)
