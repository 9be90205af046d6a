"""A plan in agreement with the others in its arena: what it takes over, what it leaves alone, what that may cost."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stowplan.packing import check
from stowplan.planning import Plan, make_plan
from stowplan.planning.co_placement import (
    TOLERANCE,
    is_obstructed,
    obstructed_bytes,
    place_around,
    place_beside,
)

from .logs import profile

ALIGNMENT = 64
WIDE = 1 << 20


def a_plan(text: str) -> Plan:
    return make_plan(profile(text), alignment=ALIGNMENT)


def place(plan: Plan, request: int) -> tuple[int, int]:
    offset = int(plan.offset[request])
    return offset, offset + int(plan.problem.size[np.searchsorted(plan.rows, request)])


def apart(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[1] <= b[0] or b[1] <= a[0]


TRAINING = "128 ~1 640 -0 1280 -2"  # request 1 stands between steps


def test_without_neighbours_a_plan_stays_as_it_is() -> None:
    plan = a_plan(TRAINING)
    assert place_beside(plan, [], arena_bytes=WIDE) is plan


def test_what_stands_between_steps_is_left_alone() -> None:
    training, evaluation = a_plan(TRAINING), a_plan("1920 2560 -0 -1")
    placed = place_beside(evaluation, [training], arena_bytes=WIDE)
    assert training.residents.tolist() == [list(place(training, 1))]
    assert all(apart(place(placed, request), place(training, 1)) for request in range(2))


def test_equal_wrapped_blocks_share_their_places() -> None:
    training, short_batch = a_plan(TRAINING), a_plan("64 ~1 640 -0 320 -2")
    placed = place_beside(short_batch, [training], arena_bytes=WIDE)
    assert place(placed, 1) == place(training, 1)


def test_common_beginnings_have_the_same_offsets() -> None:
    long, short = a_plan("640 1280 320 -1 2560 -0 -2 -3"), a_plan("640 1280 320 -0 -1 -2")
    placed = place_beside(short, [long], arena_bytes=WIDE)
    assert placed.offset.tolist() == long.offset[:3].tolist()


def test_agreement_that_costs_memory_is_given_up() -> None:
    plan, keeps = a_plan("1280 -0"), a_plan("~0 64000")
    assert place_beside(plan, [keeps], arena_bytes=64000) is plan
    assert place_beside(plan, [keeps], arena_bytes=64000 + 1280).offset.tolist() == [64000]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """A step of up to eight blocks, some of which are wrapped, some escaped."""
    words: list[str] = []
    for request in range(draw(st.integers(1, 8))):
        words.append(str(draw(st.sampled_from([64, 128, 640, 1280]))))
        end = draw(st.sampled_from(["-", "~", ""]))
        if end:  # somewhere after the request, or before it in the following step
            last = len(words)
            place = last if end == "-" else draw(st.integers(0, last - 1))
            words.insert(place, f"{end}{request}")
    return a_plan(" ".join(words))


@given(plans(), st.lists(plans(), max_size=3), st.sampled_from([0, WIDE]))
def test_a_placement_beside_any_others_is_valid_and_small(
    plan: Plan, others: list[Plan], arena_bytes: int
) -> None:
    placed = place_beside(plan, others, arena_bytes=arena_bytes)
    check(placed.problem, placed.placement.offsets)
    assert placed.arena_bytes == (placed.placement.offsets + placed.problem.size).max(initial=0)
    assert placed.arena_bytes <= max(arena_bytes, plan.arena_bytes * TOLERANCE)
    assert placed.placement.lower_bound == plan.placement.lower_bound
    optimal = placed.arena_bytes == placed.placement.lower_bound
    assert placed is plan or (placed.placement.status == "optimal") == optimal


# ------------------------------------------------------------------------------------------------------ occupied


def ranges(*taken: tuple[int, int]) -> np.ndarray:
    return np.array(taken, dtype=np.int64).reshape(-1, 2)


RANGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda r: (64 * r[0], 64 * (r[0] + r[1]))),
    max_size=6,
)


def overlaps(plan: Plan, taken: list[tuple[int, int]]) -> list[bool]:
    """Which planned blocks overlap one of the ranges, the plain way."""
    placed = zip(plan.placement.offsets.tolist(), plan.problem.size.tolist(), strict=True)
    return [any(begin < offset + size and offset < end for begin, end in taken) for offset, size in placed]


@given(RANGES)
def test_what_obstructs_a_plan(taken: list[tuple[int, int]]) -> None:
    plan = a_plan(TRAINING)
    blocks = overlaps(plan, taken)
    assert is_obstructed(plan, ranges(*taken)) == any(blocks)
    if any(blocks):
        size = plan.problem.size[blocks]
        assert size.max() <= obstructed_bytes(plan, ranges(*taken)) <= size.sum()


@given(RANGES)
def test_a_plan_is_placed_around_what_stays_beside_others(taken: list[tuple[int, int]]) -> None:
    plan, training = a_plan("1920 2560 -0 -1"), a_plan(TRAINING)
    placed = place_around(plan, ranges(*taken), [training], arena_bytes=None)
    assert placed is not None
    check(placed.problem, placed.placement.offsets)
    assert not any(overlaps(placed, taken))
    if not any(overlaps(plan, taken)):
        assert placed is plan
    elif not any(overlaps(training, taken)):
        assert not any(overlaps(placed, [place(training, 1)]))


def test_no_room_around_what_stays_means_no_plan() -> None:
    plan = a_plan(TRAINING)
    bytes_needed = plan.arena_bytes
    assert place_around(plan, ranges((64, 128)), [], arena_bytes=bytes_needed) is None
    around = place_around(plan, ranges((64, 128)), [], arena_bytes=2 * bytes_needed)
    assert around is not None
    assert around.arena_bytes <= 2 * bytes_needed
