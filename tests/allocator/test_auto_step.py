"""Pools that find the step by themselves."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.allocator._core import HandlerPool
from stowplan.profiler import NumpyRecorder, StepLog, profile_step
from stowplan.profiler._recorder import set_handler
from stowplan.profiler.default_handler import default_handler

from ..children import end_quietly
from ..running import in_threads, run


def heat(steps: int, after_step: Callable[[], object] = lambda: None) -> np.ndarray:
    """Diffuse a point of heat; u and its Laplacian stay until their successors are there."""
    u = np.zeros((120, 80))
    u[60, 40] = 1
    for _ in range(steps):
        laplacian = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u
        u = u + 0.1 * laplacian
        after_step()
    return u


class Watch:
    """The counts of a pool after each step; plans are ready for the next one."""

    def __init__(self, pool: NumpyPool) -> None:
        self.pool = pool
        self.stats = [pool.stats]

    def __call__(self) -> None:
        self.pool.wait()
        self.stats.append(self.pool.stats)

    @property
    def found_after(self) -> int:
        """Steps of the program after which the pool had found the step."""
        return next(number for number, stats in enumerate(self.stats) if stats.steps > 0)

    def replayed(self, first: int, last: int | None = None) -> float:
        """Share of the requests of some steps that were served from a plan."""
        before, after = self.stats[first], self.stats[-1 if last is None else last]
        replayed = after.replayed - before.replayed
        return replayed / (replayed + after.upstream - before.upstream + after.guests - before.guests)


def test_a_loop_of_numpy_is_replayed_from_the_sixth_step_on() -> None:
    pool = NumpyPool(auto_step=True)
    watch = Watch(pool)
    with pool:
        result = heat(20, watch)
    np.testing.assert_array_equal(result, heat(20))
    assert watch.found_after <= 5
    assert watch.replayed(6) == 1
    assert pool.stats.plans == 1


def test_nobody_has_to_wait_for_plans() -> None:
    pool = NumpyPool(auto_step=True)
    with pool:
        for _ in range(200):
            heat(100)
            if pool.stats.replayed:
                break
    assert pool.stats.replayed


def chain(size: int = 3000) -> float:
    a = np.arange(size, dtype=np.float64)
    b = a * 2 + 1
    return float(np.concatenate([b, a])[::7].sum())


def test_what_is_found_equals_what_is_recorded() -> None:
    recorder = NumpyRecorder()
    with recorder:
        for _ in range(3):
            with recorder.step():
                chain()
    host = HandlerPool("found", default_handler(), 0)
    host.find_steps()
    before = set_handler(host.handler)  # and nothing that collects
    for _ in range(6):
        chain()
    set_handler(before)
    gap, *logs = [StepLog(events) for _, (events, *_) in host.take_outcomes()]
    assert len(gap.events) == 0
    expected = recorder.profile()
    profiles = [profile_step(*pair) for pair in pairwise(logs)]
    assert len(profiles) >= 2
    for profile in profiles:
        at = profile.size.tolist().index(expected.size[0])  # another beginning of the same circle
        assert np.roll(profile.size, -at).tolist() == expected.size.tolist()
        assert profile.planned_peak == expected.planned_peak
        assert not profile.escaped.any()


def train(pool: NumpyPool, steps: int, made_in: int = 0, size: int = 500) -> None:
    """Train with gradients that stay until the next update, and a state, which the update of one step makes."""
    state: list[np.ndarray] = []
    gradients: list[np.ndarray] = []
    for step in range(steps):
        activations = [np.ones(40_000 + 500 * k) for k in range(8)]
        gradients.clear()
        while activations:
            gradients.append(activations.pop()[:500] * 2)
        if step == made_in:
            state = [np.zeros(size) for _ in gradients]
        for one, gradient in zip(state, gradients, strict=False):
            np.add(one[:500], gradient, out=one[:500])
        pool.wait()


def test_the_step_that_makes_the_optimizers_state_is_not_planned() -> None:
    pool = NumpyPool(auto_step=True)
    with pool:
        train(pool, 12)
    assert pool.stats.plans == 1
    assert pool.plan().placement.status == "optimal"


def test_plans_make_way_for_what_a_later_step_begins_to_keep() -> None:
    pool = NumpyPool(auto_step=True)
    with pool:
        train(pool, 200, made_in=10, size=20_000)
    assert pool.stats.replayed > 0.5 * pool.stats.requests


def test_a_marked_step_ends_the_search() -> None:
    pool = NumpyPool(small=0, auto_step=True)
    with pool:
        for _ in range(10):
            chain()
            pool.wait()
        found = pool.stats
        assert found.replayed
        run(pool, 6, chain, "marked")
        marked = pool.stats
        for _ in range(9):
            chain()
            pool.wait()
    stats = pool.stats
    assert marked.steps == found.steps + 1 + 6  # the one that was running ends, too
    assert marked.replayed > found.replayed
    assert (stats.steps, stats.replayed) == (marked.steps, marked.replayed)  # nobody looks for steps any more
    assert {entry.key for entry in pool._lanes()._all()[0].held} == {None, "marked"}


def test_interrupted_parts_are_not_looked_at() -> None:
    pool = NumpyPool(auto_step=True)
    watch = Watch(pool)
    with pool:
        for i in range(15):
            chain()
            with pool.interrupt():
                np.ones(1000 + 100 * i)
            chain()
            watch()
    assert watch.found_after <= 5
    before, after = watch.stats[6], watch.stats[-1]
    assert after.upstream - before.upstream == 9
    assert after.reasons["interrupted"] == 15


def test_another_thread_does_not_disturb() -> None:
    pool = NumpyPool(auto_step=True)
    with pool:
        for i in range(20):
            chain()
            if i % 7 == 3:
                in_threads(partial(contextvars.copy_context().run, np.ones, 5000))
            pool.wait()
    assert pool.stats.reasons["no_plan"] >= 3
    assert pool.stats.replayed > 40


def test_each_thread_has_steps_of_its_own() -> None:
    pool = NumpyPool(auto_step=True)
    turns = [threading.Barrier(3) for _ in range(30)]
    replayed = []

    def training(size: int) -> None:
        with pool:
            for turn in turns:
                turn.wait()
                chain(size)
                pool.wait()
            before = pool.stats.replayed
            turns[-1].wait()
            chain(size)
            replayed.append(pool.stats.replayed - before)

    in_threads(*(partial(training, size) for size in (3000, 4000, 5000)))
    assert pool.stats.plans >= 3
    assert min(replayed) >= 3


def test_more_threads_than_can_be_watched() -> None:
    pool = NumpyPool(auto_step=True)

    def short() -> None:
        with pool:
            chain()

    for _ in range(60):
        in_threads(short, short, short)
    with pool:
        for _ in range(3000):
            chain()
        pool.wait()
        before = pool.stats.replayed
        for _ in range(20):
            chain()
    assert pool.stats.replayed - before > 50


@pytest.mark.parametrize("end", ["", "del pool", "import os; os._exit(0)", "raise SystemExit"])
def test_the_interpreter_goes_down_in_the_middle(end: str) -> None:
    program = f"""
import numpy as np
from stowplan import NumpyPool
pool = NumpyPool(auto_step=True)
pool.__enter__()
kept = []
for i in range(300):
    a = np.arange(3000.0)
    b = a * 2
    kept = [a, b]
{end}
"""
    end_quietly(program)


def test_the_outcome_thread_ends_with_its_pool() -> None:
    def outcome_threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "stowplan-outcomes"]

    before = outcome_threads()
    pool = NumpyPool(auto_step=True)
    (own,) = set(outcome_threads()) - set(before)
    del pool
    own.join(600)
    assert not own.is_alive()


# -------------------------------------------------------------------------------------------------------- networks


@pytest.mark.no_cover
def test_the_step_of_a_language_model_is_found_though_its_loops_are(chainer: Any) -> None:
    """Forward, backward and update each are a loop, and each is found in its turn."""
    from experiments.models.ptb import LanguageModel

    pool = NumpyPool(auto_step=True, planning_share=1)
    watch = Watch(pool)
    with pool:
        model = LanguageModel(layers=1, words=300, units=32)
        optimizer = chainer.optimizers.SGD().setup(model)
        words = np.random.default_rng(0).integers(0, 300, (2, 21)).astype(np.int32)
        for _ in range(14):
            loss = model(words[:, :-1], words[:, 1:])
            model.cleargrads()
            loss.backward()
            optimizer.update()
            del loss
            watch()
    steps = [after.steps - before.steps for before, after in pairwise(watch.stats[8:])]
    assert steps == [1] * len(steps)
    assert watch.replayed(10) >= 0.9
