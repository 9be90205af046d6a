"""NumpyPool through real NumPy arrays."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.errors import PoolError, ProfileError, StowplanError
from stowplan.profiler.default_handler import default_handler


def chain(size: int = 10_000) -> float:
    """A step with temporaries of several sizes."""
    a = np.arange(size, dtype=np.float64)
    b = a * 2 + 1
    c = np.concatenate([b, a])
    return float(c[::7].sum())


def train(pool: NumpyPool, steps: int, work=chain) -> list[object]:
    results = []
    for _ in range(steps):
        with pool.step():
            results.append(work())
        pool.wait()  # so that plans are taken up where the tests say
    return results


def test_steps_are_replayed_and_change_no_value() -> None:
    pool = NumpyPool(small=0)
    with pool:
        results = train(pool, 10)
    assert results == [chain()] * 10
    stats = pool.stats
    assert stats.plans == 1
    assert set(stats.reasons) == {"no_plan"}  # warm-up, record and confirm only
    assert stats.replayed == 7 * len(pool.profile())
    assert stats.live_bytes == 0


def test_arena_is_at_the_lower_bound_and_reserved_once() -> None:
    pool = NumpyPool(small=0)
    with pool:
        train(pool, 10)
    assert pool.stats.arena_bytes == pool.stats.lower_bound == pool.plan().arena_bytes
    assert pool.stats.fragmentation == 0
    assert pool.profile().planned_peak <= pool.stats.lower_bound


def test_wrapped_blocks_are_planned() -> None:
    gradient = None

    def work() -> None:
        nonlocal gradient
        activation = np.ones(5000)
        gradient = None  # of the step before
        gradient = activation * 2

    pool = NumpyPool(small=0)
    with pool:
        train(pool, 8, work)
    assert pool.profile().wrapped.sum() == 1
    assert set(pool.stats.reasons) == {"no_plan"}
    assert (gradient == 2).all()


@pytest.mark.parametrize("size", [1, 777, 500_000])
def test_an_extra_request_costs_few_others_their_place(size: int) -> None:
    pool = NumpyPool(small=0)
    expected = chain()
    with pool:
        train(pool, 5)
        before = pool.stats
        with pool.step():
            extra = np.empty(size)
            assert chain() == expected
            extra[:] = 3
        after = pool.stats
    assert (extra == 3).all()
    assert 1 <= after.upstream - before.upstream <= 3


def test_larger_smaller_and_missing_requests() -> None:
    def work(first: int = 3000, second: bool = True) -> float:
        total = 0.0
        for size in (first, 700, 1500, 900):
            if size == 700 and not second:
                continue
            total += float(np.full(size, 1.0).sum())
        return total

    pool = NumpyPool(small=0)
    with pool:
        assert train(pool, 5, work) == [6100.0] * 5
        for changed, expected in (
            (lambda: work(first=4000), 7100.0),
            (lambda: work(first=2000), 5100.0),
            (lambda: work(second=False), 5400.0),
        ):
            assert train(pool, 1, changed) == [expected]
            assert train(pool, 1, work) == [6100.0]
    stats = pool.stats
    assert stats.smaller >= 1
    assert stats.missing >= 1
    assert stats.reasons["mismatch"] >= 2


def test_late_blocks_keep_their_bytes() -> None:
    kept: list[np.ndarray] = []

    def work(keep: bool = False) -> None:
        a = np.full(4000, 1.0)
        if keep:
            kept.append(a)
        del a
        b = np.full(4000, 2.0)  # planned at the same address
        assert b.min() == b.max() == 2

    pool = NumpyPool(small=0)
    with pool:
        train(pool, 5, work)
        assert pool.stats.arena_bytes < 2 * 32_000
        for _ in range(5):
            train(pool, 1, lambda: work(keep=True))
        train(pool, 3, work)
    assert pool.stats.reasons["late"] > 0
    assert all((a == 1).all() for a in kept)


def test_a_new_step_brings_a_new_plan() -> None:
    pool = NumpyPool(small=0)
    with pool:
        train(pool, 5)
        first = pool.plan()
        assert train(pool, 6, lambda: chain(20_000)) == [chain(20_000)] * 6
    assert pool.stats.plans == 2
    assert pool.stats.reoptimizations == 1
    assert pool.plan().arena_bytes > first.arena_bytes
    assert pool.stats.arena_bytes == pool.plan().arena_bytes  # the first arena has gone


def test_the_arena_grows_in_place_around_what_lives_in_it() -> None:
    pool = NumpyPool(small=0, warmup=0)
    with pool:
        train(pool, 3)
        with pool.step():
            kept = np.arange(10_000, dtype=np.float64)
            chain()
        expected = kept.copy()
        train(pool, 4, lambda: chain(50_000))
        assert (kept == expected).all()
        assert pool.stats.arena_bytes == pool.plan().arena_bytes
        del kept
        train(pool, 1, lambda: chain(50_000))


def test_what_the_plan_does_not_know_is_a_guest_of_the_arena() -> None:
    pool = NumpyPool(small=0)
    with pool:
        train(pool, 5)
        before = pool.stats
        with pool.step():
            chain()
            extra = np.full(5_000, 7.0)  # at the step's end the arena is empty
            assert chain() == chain()
        assert pool.stats.guests > before.guests
        assert pool.stats.reserved_bytes == pool.stats.arena_bytes
        train(pool, 3)
    assert (extra == 7).all()


def test_calloc_is_zeroed_in_recycled_memory() -> None:
    def work() -> None:
        dirty = np.full(3000, 7.0)
        del dirty
        clean = np.zeros(3000)
        assert not clean.any()

    pool = NumpyPool(small=0)
    with pool:
        train(pool, 8, work)
    assert pool.stats.arena_bytes < 2 * 24_000


def test_realloc_keeps_the_bytes() -> None:
    def work() -> None:
        a = np.arange(1000)
        a.resize(5000, refcheck=False)
        assert (a[:1000] == np.arange(1000)).all()
        assert not a[1000:].any()
        a.resize(10, refcheck=False)
        assert (a == np.arange(10)).all()

    pool = NumpyPool(small=0)
    with pool:
        train(pool, 8, work)
        work()
    assert set(pool.stats.reasons) == {"no_plan", "outside"}


def test_empty_arrays_have_addresses_of_their_own() -> None:
    def work() -> None:
        arrays = [np.empty(0) for _ in range(20)]
        assert len({a.__array_interface__["data"][0] for a in arrays}) == 20

    pool = NumpyPool(small=0)
    with pool:
        train(pool, 8, work)


def test_an_exception_leaves_the_pool_usable() -> None:
    pool = NumpyPool(small=0)

    expected = chain()

    def broken() -> None:
        np.ones(1234)
        raise KeyError("user's")

    with pool:
        for _ in range(3):
            with pytest.raises(KeyError):
                train(pool, 1, broken)
        train(pool, 5)
        with pytest.raises(KeyError):
            train(pool, 1, broken)
        before = pool.stats
        assert train(pool, 1) == [expected]
        assert pool.stats.replayed - before.replayed == len(pool.profile())
        assert pool.stats.upstream == before.upstream


def test_arrays_outlive_their_pool() -> None:
    pool = NumpyPool(small=0)
    with pool:
        for _ in range(6):
            with pool.step():
                kept = np.arange(1000)
                other = np.arange(1000) * 2
                del other
    expected = np.arange(1000)
    del pool
    gc.collect()
    assert (kept == expected).all()
    del kept


def test_the_context_is_left_as_it_was() -> None:
    from stowplan.profiler._recorder import current_handler

    before = current_handler()
    with NumpyPool(small=0):
        assert current_handler() is not before
    assert current_handler() is before


def test_misuse_is_refused() -> None:
    pool = NumpyPool(small=0)
    with pool:
        with pytest.raises(PoolError, match="entered this pool already"):
            pool.__enter__()
        with pool.step(), pytest.raises(PoolError, match="steps do not nest"), pool.step():
            pass
        train(pool, 5)
    for warmup in (-1, 1.5, "2", True):
        with pytest.raises(PoolError, match="number of steps"):
            NumpyPool(small=0, warmup=warmup)  # type: ignore[arg-type]
    with pytest.raises(StowplanError, match="nobody"):
        NumpyPool(small=0, planner="nobody")


def test_there_is_no_profile_before_the_first_plan() -> None:
    with pytest.raises(ProfileError, match="no plan yet"):
        NumpyPool(small=0).profile()


def test_nested_pools_leave_each_other_alone() -> None:
    outer, inner = NumpyPool(small=0), NumpyPool()
    with outer:
        for _ in range(6):
            with outer.step():
                chain()
                with inner, inner.step():
                    chain()
            assert outer.wait()
            assert inner.wait()
    assert outer.stats.plans == inner.stats.plans == 1
    assert set(inner.stats.reasons) == {"no_plan"}


def test_default_handler_is_the_same_inside_a_pool() -> None:
    before = default_handler()
    with NumpyPool(small=0):
        assert default_handler() is before


@pytest.mark.parametrize("when", ["in a step", "between steps", "after the pool"])
def test_interpreter_exit_with_live_arrays(when: str) -> None:
    program = f"""
import numpy as np, sys
from stowplan import NumpyPool
pool = NumpyPool(small=0)
kept = []
with pool:
    for i in range(8):
        with pool.step():
            a = np.ones(5000) * i
            kept.append(a[:10]) if i > 5 else None
            if i == 7 and {when!r} == "in a step":
                sys.exit(0)
    if {when!r} == "between steps":
        sys.exit(0)
del pool
class Late:
    def __del__(self):
        assert kept_here[-1][0] == 7
kept_here, late = kept, Late()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ------------------------------------------------------------------------------------------------ keys and variants


def shapes(sizes: tuple[int, ...]) -> float:
    """A step that asks for these sizes in turn, two alive at once."""
    total, previous = 0.0, np.zeros(1)
    for size in sizes:
        current = np.full(size, 1.0)
        total += float(current.sum() + previous.sum())
        previous = current
    return total


TRAIN, EVALUATE, SHORT = (3000, 700, 1500, 900), (5000, 100), (3000, 700, 20)


@pytest.mark.parametrize("keys", [("train", "eval", "short"), (None, None, None)])
def test_alternating_steps_make_three_plans_and_no_more(keys: tuple[str | None, ...]) -> None:
    pool = NumpyPool(small=0, warmup=0)
    with pool:
        for round_ in range(10):
            before = pool.stats
            for key, sizes in zip(keys, (TRAIN, EVALUATE, SHORT), strict=True):
                with pool.step(key):
                    assert shapes(sizes) == shapes(sizes)
                pool.wait()
            if round_ >= 2:
                assert pool.stats.upstream == before.upstream
    assert (pool.stats.plans, pool.stats.reoptimizations) == (3, 0)


class Trainer:
    """Parameters whose gradients stand between the steps, as in Chainer."""

    def __init__(self) -> None:
        self.gradients: list[np.ndarray] = []

    def train(self, batch: int) -> float:
        activations = [np.full(batch * width, 2.0) for width in (50, 30, 20)]
        self.gradients.clear()
        for activation in reversed(activations):
            self.gradients.append(np.full(4000, activation[0]))
        return sum(float(g.sum()) for g in self.gradients)

    def evaluate(self, batch: int) -> float:
        total = 0.0
        for width in (50, 30, 20):
            total += float(np.full(batch * width, 3.0).sum())
        assert all((g == 2).all() for g in self.gradients)
        return total


def test_gradients_stand_through_evaluation_and_the_short_batch() -> None:
    pool, program = NumpyPool(small=0, warmup=0), Trainer()
    with pool:
        for epoch in range(8):
            before = pool.stats
            for _ in range(4):
                with pool.step("train"):
                    program.train(100)
                pool.wait()
            with pool.step("short"):
                program.train(40)
            pool.wait()
            for _ in range(2):
                with pool.step("eval"):
                    program.evaluate(100)
                pool.wait()
            if epoch >= 3:
                assert pool.stats.upstream == before.upstream
    assert (pool.stats.plans, pool.stats.reoptimizations) == (3, 0)


def test_the_least_recently_used_plan_goes() -> None:
    pool = NumpyPool(small=0, warmup=0, max_plans=2)
    with pool:
        for sizes, plans in (
            (TRAIN, 1),
            (EVALUATE, 2),
            (SHORT, 3),
            (EVALUATE, 3),
            (TRAIN, 4),
            (EVALUATE, 4),
            (SHORT, 5),
        ):
            for _ in range(4):
                with pool.step(key=sizes):
                    shapes(sizes)
                pool.wait()
            assert pool.stats.plans == plans
    with pytest.raises(PoolError, match="max_plans is 0; expected a number of plans, 1 or more"):
        NumpyPool(small=0, max_plans=0)


def test_a_program_that_never_repeats_is_not_planned_for_ever() -> None:
    pool = NumpyPool(small=0, warmup=0)
    with pool:
        for i in range(40):
            train(pool, 1, lambda i=i: shapes((100 + 37 * i, 3000 - 41 * i, 17 * i + 1, 500 * (i % 3) + 1)))
    assert pool.stats.plans <= 4
