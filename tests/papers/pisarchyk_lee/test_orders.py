import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.packing import Problem
from stowplan.papers.pisarchyk_lee.orders import by_breadth, by_start, range_minima

from ...packing.problems import problems
from ...packing.reference.greedy import by_size, rectangles


def widest_first(problem: Problem) -> list[int]:
    """The widest tick first, the later of equals; there the blocks not taken yet, by size."""
    pieces = rectangles(problem)

    def alive(tick: int) -> dict[int, int]:
        return {
            i: high - low
            for i, mine in enumerate(pieces)
            for start, end, low, high in mine
            if start <= tick < end
        }

    ticks = {start for mine in pieces for start, *_ in mine}
    order: list[int] = []
    for tick in sorted(ticks, key=lambda t: (-sum(alive(t).values()), -t)):
        order += sorted(alive(tick).keys() - set(order), key=lambda i: (-problem.size[i], i))
    return order + [i for i in by_size(problem) if i not in order]


@settings(settings.get_profile("usual"))
@given(problems())
def test_orders_are_those_of_the_papers(problem):
    assert by_breadth(problem).tolist() == widest_first(problem)
    assert by_start(problem).tolist() == sorted(range(len(problem)), key=lambda i: (problem.start[i], i))


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=40), st.data())
def test_range_minima(values, draws):
    n = len(values)
    ends = st.tuples(st.integers(0, n - 1), st.integers(1, n)).filter(lambda r: r[0] < r[1])
    ranges = draws.draw(st.lists(ends, max_size=10))
    left, right = np.array(ranges, dtype=np.int64).reshape(-1, 2).T
    expected = [min(values[a:b]) for a, b in ranges]
    assert range_minima(np.array(values), left, right).tolist() == expected
