import numpy as np
import pytest

from stowplan.packing import Problem, pack

from ..problems import digest, random_problem, training_step


def test_placements_are_those_recorded():
    made = [problem for seed in range(8) for problem in (random_problem(seed), training_step(seed, 12))]
    assert digest(pack(problem, "peak_outward").offsets.tolist() for problem in made) == 313897617


def growing(caches: int, words: int) -> Problem:
    """At every word each cache is copied into one that is a unit larger, and freed."""
    blocks = []
    for word in range(words):
        for cache in range(caches):
            made = word * caches + cache
            blocks.append((word + 1, made, made + caches + 1))
    size, start, end = zip(*blocks, strict=True)
    return Problem(size, start, np.minimum(end, caches * words))


@pytest.mark.parametrize("caches", [2, 5, 12])
def test_memory_that_grows_reaches_the_lower_bound(caches):
    problem = growing(caches, 40)
    assert pack(problem, "peak_outward").optimal
    assert pack(problem).optimal
    for solver in ("best_fit", "best_fit_orders"):
        assert pack(problem, solver).gap > 0.1


def test_what_sticks_out_goes_first_the_next_time():
    #    3 | a a a a a a a a    a and b are the stack. Of the 3 bytes that b leaves, d gets the first and e the
    #    2 | b b b b . . .      second, so c goes above a. In the second run c comes before both.
    #    1 | b b b b e e e
    #    0 | b b b b d . .
    problem = Problem([101, 3, 2, 1, 1], [0, 0, 5, 4, 4], [8, 4, 7, 5, 7])
    assert pack(problem, "peak_outward", time_limit=0).offsets.tolist() == [3, 0, 104, 0, 1]  # one run
    assert pack(problem, "peak_outward").offsets.tolist() == [3, 0, 0, 0, 2]
