import pytest
from hypothesis import given, settings

from stowplan.packing import Problem, check, pack

from .problems import data, inclusive, problems, random_problem
from .twins.greedy import greedy_by_size as twin


@settings(max_examples=2000, deadline=None)
@given(problems())
def test_equals_the_double_loop(problem):
    placement = pack(problem, "greedy_by_size")
    assert placement.offsets.tolist() == twin(problem)
    check(problem, placement.offsets)


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_twin_on_larger_problems(seed):
    problem = random_problem(seed)
    placement = pack(problem, "greedy_by_size")
    assert placement.offsets.tolist() == twin(problem)
    check(problem, placement.offsets)


def test_tflite_chain():
    placement = pack(inclusive((16, 0, 1), (8, 1, 2), (64, 2, 3), (32, 3, 4), (8, 4, 5)), "greedy_by_size")
    assert placement.offsets.tolist() == [0, 64, 0, 64, 0]
    assert placement.peak == 96


def test_tflite_micro_medium():
    placement = pack(inclusive((10, 0, 1), (20, 1, 2), (30, 2, 3), (40, 3, 4), (50, 0, 1)), "greedy_by_size")
    assert placement.offsets.tolist() == [50, 70, 40, 0, 0]
    assert (placement.peak, placement.lower_bound, placement.optimal) == (90, 80, False)


def test_xla_heap_simulator():
    # Allocate a 10, b 20, c 40; free a; allocate d 30, e 50; free the rest.
    problem = Problem(size=[10, 20, 40, 30, 50], start=[0, 1, 2, 4, 5], end=[3, 6, 6, 6, 6])
    placement = pack(problem, "greedy_by_size")
    assert placement.offsets.tolist() == [90, 120, 50, 90, 0]
    assert placement.peak == 140


@pytest.mark.parametrize(
    ("name", "printed"), [("mobilenet_v1", "4.594"), ("mobilenet_v2", "5.742"), ("deeplab_v3", "4.653")]
)
def test_pisarchyk_and_lee_table_2(name, printed):
    assert f"{pack(data(f'pisarchyk/{name}.csv'), 'greedy_by_size').peak / 2**20:.3f}" == printed


def test_the_smallest_hole_wins_and_the_lowest_of_equals():
    # Fixed walls leave holes of 6, 4 and 4 bytes below the unbounded space.
    problem = Problem(
        size=[2, 2, 2, 3],
        start=[0, 0, 0, 0],
        end=[1, 1, 1, 1],
        fixed=[6, 12, 18, -1],
    )
    assert pack(problem, "greedy_by_size").offsets[3] == 8


def test_a_window_lets_others_under_and_over():
    # During the gap only the bytes 4 and 5 of the first block are occupied.
    problem = Problem(size=[10, 4, 4], start=[0, 2, 2], end=[8, 5, 5], gaps=[[0, 2, 5, 4, 6]])
    placement = pack(problem, "greedy_by_size")
    check(problem, placement.offsets)
    assert placement.offsets.tolist() == [0, 0, 6]
    assert placement.peak == 10
