"""Where in a merged plan a step is: properties of the idea, which hold whatever points a guess earns for what.

Each planned request has a place of its own here, large enough for every size, so that the compiled core tells by an
address which request it has taken one for. That its answers are the reference's in all other cases, too, test_replay.py
shows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.allocator._core import Replay

from .reference.replay import PlannedRequest
from .reference.step_locator import LANDMARK, YOUNG, StepLocatorReference
from .test_replay import ARENA, ARENA_BYTES, UPSTREAM, core_plan

WITHIN = 32
"""Requests within which a step is located again after something unplanned."""


class Request(NamedTuple):
    """A request of a step: the planned one that it is, or None; its size; the planned one before which it is freed."""

    number: int | None
    size: int
    due: int


class Locator(Protocol):
    def request(self, size: int) -> int | None: ...
    def free(self, request: int) -> None: ...


class Reference:
    def __init__(self, plan: Sequence[PlannedRequest]) -> None:
        self.locator = StepLocatorReference(plan)
        self.found: list[int | None] = []

    def request(self, size: int) -> int | None:
        self.found.append(self.locator.locate(size))
        return self.found[-1]

    def free(self, request: int) -> None:
        self.locator.freed(self.found[request], len(self.found) - request)


class Compiled:
    def __init__(self, plan: Sequence[PlannedRequest]) -> None:
        self.core = Replay()
        self.core.reserve(ARENA, ARENA_BYTES + 2 * sum(planned.capacity for planned in plan))
        assert self.core.begin_step(core_plan(list(plan)))
        self.at = {ARENA + planned.offset: number for number, planned in enumerate(plan)}
        self.blocks: list[int] = []

    def request(self, size: int) -> int | None:
        address, block = self.core.request(size)
        if address == 0:
            self.core.adopt(block, UPSTREAM + (block << 20))
        self.blocks.append(block)
        return self.at.get(address)

    def free(self, request: int) -> None:
        self.core.release(self.blocks[request])


def merged_plan(requests: Sequence[Request], least: Sequence[int]) -> list[PlannedRequest]:
    """Return the plan of these requests, each with a place of its own, large enough for all sizes."""
    capacity = max(request.size for request in requests)
    plan = []
    for k, request in enumerate(requests):
        sign = sum(1 << (k - i - 1) for i in range(max(k - YOUNG, 0), k) if requests[i].due == k)
        plan.append(
            PlannedRequest(
                request.size, capacity, k * capacity, request.due, least[k], landmark=True, sign=sign
            )
        )
    return plan


def locate(locator: Locator, step: Sequence[Request]) -> list[int | None]:
    """Return what each request of a step is taken for; blocks are freed before the first planned one from `due` on."""
    live: dict[int, int] = {}
    found = []
    for i, request in enumerate(step):
        if request.number is not None:
            for old in [j for j, due in live.items() if due <= request.number]:
                locator.free(old)
                del live[old]
        found.append(locator.request(request.size))
        live[i] = request.due
    return found


both = pytest.mark.parametrize("make", [Reference, Compiled])


# ---------------------------------------------------------------------------------------------------- exact steps


def any_plan(rng: random.Random) -> tuple[list[Request], list[int]]:
    """Return a plan and its smallest sizes: few sizes and any lifetimes, so that much in it looks alike."""
    n = rng.randint(1, 80)
    dues = [min(n, k + rng.choice([1, 1, 1, 2, 3, 9, 70, n])) for k in range(n)]
    requests = [Request(k, rng.choice([1, 2, 3, 50, 1000]), due) for k, due in enumerate(dues)]
    return requests, [rng.choice([1, request.size]) for request in requests]


@both
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_an_exact_step_is_located_exactly(make: type[Reference | Compiled], seed: int) -> None:
    rng = random.Random(seed)
    requests, least = any_plan(rng)
    step = [
        request._replace(size=rng.randint(small, request.size))
        for request, small in zip(requests, least, strict=True)
    ]
    assert locate(make(merged_plan(requests, least)), step) == list(range(len(requests)))


# ------------------------------------------------------------------------------------- requests too few, or too many


def telling_plan(seed: int) -> list[Request]:
    """Return a plan in which no two requests have one size; temporaries, and blocks that stay to the end."""
    rng = random.Random(seed)
    n = rng.randint(90, 110)
    sizes = rng.sample(range(1000, 3000, 2), n)
    life = rng.randint(1, 3)
    return [Request(k, sizes[k], min(n, k + rng.choice([*range(1, life + 1), n]))) for k in range(n)]


def assert_located_again(plan: list[Request], step: list[Request], changed: int) -> None:
    """The step is located exactly before the change at this request, and again some requests after it."""
    found = locate(Reference(merged_plan(plan, [request.size for request in plan])), step)
    for i in [*range(changed), *range(changed + WITHIN, len(step))]:
        assert found[i] == step[i].number


@settings(max_examples=60, derandomize=True)
@given(seed=st.integers(0, 2**32), where=st.integers(0, 50), missing=st.integers(1, 20))
def test_with_requests_left_out_it_is_located_again(seed: int, where: int, missing: int) -> None:
    plan = telling_plan(seed)
    assert_located_again(plan, plan[:where] + plan[where + missing :], where)


@settings(max_examples=60, derandomize=True)
@given(seed=st.integers(0, 2**32), where=st.integers(0, 50), life=st.integers(0, 8))
def test_with_a_request_put_in_it_is_located_again(seed: int, where: int, life: int) -> None:
    plan = telling_plan(seed)
    extra = Request(None, 1001, where + life)
    assert_located_again(plan, [*plan[:where], extra, *plan[where:]], where)


# ------------------------------------------------------------------------------------------------- shorter loops


def loops(iterations: int, body: int, full: int) -> list[Request]:
    """The first iterations of a loop, each of which keeps a block, and the loop back, which frees them.

    Numbers are those of the plan with `full` iterations. Sizes tell the lines of the loop apart, not its iterations.
    """
    middle = full * (body + 1)

    def back(i: int) -> int:
        """Return the first request of an iteration on the way back."""
        return middle + (full - 1 - i) * body

    step = []
    for i in range(iterations):
        step.append(Request(i * (body + 1), 5000, back(i) + body))
        first = i * (body + 1) + 1
        step += [Request(first + line, 1000 + line, first + line + 1) for line in range(body)]
    for i in reversed(range(iterations)):
        step += [Request(back(i) + line, 2000 + line, back(i) + line + 1) for line in range(body)]
    return step


@both
@settings(max_examples=12)
@given(full=st.integers(20, 24), body=st.integers(8, 10), missing=st.integers(1, 10))
def test_a_loop_back_is_located_by_what_it_frees(
    make: type[Reference | Compiled], full: int, body: int, missing: int
) -> None:
    """Exactly from the third free of a long-lived block on, if no more than half of the iterations are missing.

    Before the first, nothing tells the iterations apart.
    """
    planned, step = loops(full, body, full), loops(full - missing, body, full)
    found = locate(make(merged_plan(planned, [request.size for request in planned])), step)
    half = (full - missing) * (body + 1)
    assert found[:half] == [request.number for request in step[:half]]
    landmarks = {kept.due for k, kept in enumerate(planned) if kept.size == 5000 and kept.due - k > LANDMARK}
    _, _, third, *_ = [i for i in range(half, len(step)) if step[i].number in landmarks]
    assert found[third:] == [request.number for request in step[third:]]
