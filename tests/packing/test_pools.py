import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.errors import PoolError
from stowplan.packing import Problem, lower_bound
from stowplan.packing.bounds import live_bytes
from stowplan.packing.pools import CupyPoolModel, replay, requests

from .problems import problems, training_step


def test_sizes_are_rounded_up_to_512():
    pool = CupyPoolModel()
    for size in (1, 512, 513):
        pool.malloc(size)
    assert (pool.reserved, pool.used, pool.peak_reserved) == (2048, 2048, 2048)


def test_zero_bytes_occupy_nothing():
    pool = CupyPoolModel()
    pool.free(pool.malloc(0))
    assert pool.reserved == pool.used == 0


def test_a_freed_chunk_is_reused_and_nothing_is_returned():
    pool = CupyPoolModel()
    pool.free(pool.malloc(4096))
    assert (pool.reserved, pool.used) == (4096, 0)
    pool.malloc(4000)
    assert (pool.reserved, pool.used) == (4096, 4096)


def test_the_smallest_sufficient_chunk_is_taken_and_split():
    pool = CupyPoolModel()
    large, small = pool.malloc(8192), pool.malloc(2048)
    pool.free(large)
    pool.free(small)
    pool.malloc(1024)  # out of the 2048
    pool.malloc(8192)  # the large chunk is still whole
    pool.malloc(1024)  # the rest of the 2048
    assert pool.reserved == pool.used == 10240


def test_neighbours_join_within_one_reservation():
    pool = CupyPoolModel()
    pool.free(pool.malloc(3 * 512))
    a, b, c = (pool.malloc(512) for _ in range(3))
    for handle in (a, c, b):  # b joins both sides
        pool.free(handle)
    pool.malloc(3 * 512)
    assert pool.reserved == 3 * 512


def test_reservations_do_not_join_with_each_other():
    pool = CupyPoolModel()
    a, b = pool.malloc(512), pool.malloc(512)
    pool.free(a)
    pool.free(b)
    pool.malloc(1024)
    assert pool.reserved == 2048


def test_of_equal_chunks_the_one_freed_last_is_taken():
    pool = CupyPoolModel()
    whole = pool.malloc(2048)
    single = pool.malloc(1024)
    pool.free(whole)
    left, right = pool.malloc(1024), pool.malloc(1024)
    pool.free(left)
    pool.free(single)  # freed last: the next request takes it, so the two halves can join again
    pool.malloc(1024)
    pool.free(right)
    pool.malloc(2048)
    assert pool.reserved == 3072


def test_wrong_use_is_refused():
    pool = CupyPoolModel()
    handle = pool.malloc(10)
    pool.free(handle)
    with pytest.raises(PoolError, match=f"no live block {handle}"):
        pool.free(handle)
    with pytest.raises(PoolError, match="-1 bytes"):
        pool.malloc(-1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5000)), max_size=60))
def test_bytes_are_conserved(steps):
    pool, live = CupyPoolModel(), {}
    for allocate, number in steps:
        if allocate or not live:
            live[pool.malloc(number)] = -(-number // 512) * 512
        else:
            handle = list(live)[number % len(live)]
            pool.free(handle)
            del live[handle]
        assert pool.used == sum(live.values())
        assert pool.used <= pool.reserved == pool.peak_reserved
    for handle in live:
        pool.free(handle)
    # Each reservation is whole again, so what was reserved can be had again without reserving more.
    reserved = pool.reserved
    for size, _, _ in reversed(list(pool._heap._free)):
        pool.malloc(size)
    assert pool.used == pool.reserved == reserved


def test_requests_of_a_step():
    problem = Problem(
        size=[512, 512, 512],
        start=[0, 1, 2],
        end=[9, 5, 9],
        gaps=[[0, 3, 6, 0, 0], [1, 2, 4, 0, 100]],
    )
    block, allocate, _ = requests(problem)
    # Block 0 is wrapped: freed at 3, made anew at 6. The gap of block 1 leaves a window, so it stays.
    assert list(zip(block.tolist(), allocate.tolist(), strict=True)) == [
        (1, True),
        (2, True),
        (0, False),
        (1, False),
        (0, True),
        (2, False),
    ]


def test_wrapped_blocks_cross_into_the_next_step():
    problem = Problem(size=[1024, 512], start=[0, 1], end=[9, 2], gaps=[[0, 4, 6]])
    pool = CupyPoolModel()
    replay(requests(problem), pool, steps=1)
    assert (pool.used, pool.reserved) == (1024, 1536)
    replay_twice = CupyPoolModel()
    replay(requests(problem), replay_twice, steps=2)
    assert (replay_twice.used, replay_twice.reserved) == (1024, 1536)


@given(problems())
def test_what_is_alive_at_once_is_reserved(problem):
    # Wrapped blocks are absent in the first step: from the second on, everything is as the problem says.
    whole = -(-problem.size // 512) * 512
    absent = problem.gaps[problem.gaps[:, 4] == 0][:, :3]
    rounded = Problem(whole, problem.start, problem.end, gaps=absent)
    pieces = rounded.pieces()
    pool = CupyPoolModel()
    replay(requests(rounded), pool, steps=2)
    if len(pieces.start):
        assert pool.peak_reserved >= live_bytes(pieces.start, pieces.end, pieces.upper)[1].max()


def test_a_training_step_fragments_the_pool():
    problem = training_step(0)
    pool = CupyPoolModel()
    replay(requests(problem), pool, steps=5)
    assert pool.peak_reserved > 1.05 * lower_bound(problem)
