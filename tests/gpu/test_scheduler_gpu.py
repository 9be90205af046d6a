"""Scheduled training of ResNet-50 on the GPU: lean, within a budget, at random, swapping: the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stowplan import CupyPool

from .test_cupy_pool_gpu import PAGE
from .test_training_gpu import SIMULATED, STEPS, State, a_run, resnet50, train

pytestmark = pytest.mark.gpu


@pytest.fixture
def reference(chainer: Any, cupy: Any) -> State:
    """What Chainer computes by itself, each time."""
    plain = a_run(chainer, cupy, None)
    again = a_run(chainer, cupy, None)
    different = [name for name in plain if plain[name] != again[name]]
    assert not different, f"not deterministic even without a schedule: {different}"
    return plain


def scheduled(
    chainer: Any, cupy: Any, pool: CupyPool | None = None, seed: int | None = None, **options: Any
) -> tuple[State, Any]:
    """Train as `a_run` does, with a scheduler; with a seed it follows a schedule drawn at random."""
    from stowplan.chainer import Scheduler

    from ..integrations.chainer.training_runs import RandomScheduler

    np.random.seed(0)  # noqa: NPY002 (Chainer's initializers draw from it)
    cupy.random.seed(0)
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool().malloc)
    model, loss_of = resnet50(chainer, cupy)
    optimizer = chainer.optimizers.MomentumSGD(lr=0.001, momentum=0.9).setup(model)
    drawn = None if seed is None else RandomScheduler(optimizer, seed, 0.6, **options)
    scheduler = drawn or Scheduler(optimizer, pool, **options)
    state = train(model, optimizer, loss_of, lambda key: scheduler.step(), scheduler.wait)
    return state, scheduler


def test_lean(chainer: Any, cupy: Any, reference: State) -> None:
    pool = CupyPool(warmup=0)
    found, scheduler = scheduled(chainer, cupy, pool)
    assert [name for name in reference if found[name] != reference[name]] == []
    assert scheduler.stats.lean == STEPS - 1
    assert (scheduler.stats.keeps_graph, scheduler.stats.keeps_gradients) == (None, None)
    assert pool.stats.replayed > 0
    assert 0 <= pool.stats.arena_bytes - pool.stats.lower_bound < PAGE
    print(f"lean: {scheduler.stats} {pool.stats}")


@pytest.mark.parametrize("swap", [False, True])
def test_under_a_budget(chainer: Any, cupy: Any, reference: State, swap: bool) -> None:
    _, lean = scheduled(chainer, cupy, budget="1 TiB")  # a schedule that has nothing to do
    assert lean.stats.recomputed == 0
    retained = lean.stats.retained_bytes
    share = 0.75 if SIMULATED else 0.7  # of three blocks, less can be dropped
    budget = retained + int(share * lean.stats.planned_peak)
    pool = CupyPool(warmup=0)
    found, scheduler = scheduled(chainer, cupy, pool, budget=budget, swap=swap)
    assert [name for name in reference if found[name] != reference[name]] == []
    assert scheduler.stats.scheduled == STEPS - 4
    assert scheduler.stats.departed == 0
    assert scheduler.stats.keeps_values is None
    assert swap or scheduler.stats.recomputed > 0
    assert pool.wait(60)
    assert 0 < pool.plan().arena_bytes <= 1.02 * (budget - retained)
    print(f"budget of {budget:,} bytes, swap {swap}: {scheduler.stats} {pool.stats}")


@pytest.mark.parametrize("seed", range(3))
def test_random_schedules(chainer: Any, cupy: Any, reference: State, seed: int) -> None:
    found, scheduler = scheduled(chainer, cupy, seed=seed, swap=seed == 2)
    assert [name for name in reference if found[name] != reference[name]] == []
    assert (scheduler.stats.scheduled, scheduler.stats.departed) == (STEPS - 4, 0)
    assert scheduler.drawn > 0
    if seed == 2:
        assert scheduler.stats.keeps_values is None
        assert scheduler._swap.counts.fetched == scheduler._swap.counts.evicted > 0
    else:
        assert scheduler.stats.recomputed > 0


def test_parameters_are_measured_on_their_device(chainer: Any, cupy: Any) -> None:
    from stowplan.chainer import meter

    link = chainer.links.Linear(3, 3)
    link.to_device("@cupy:0")
    measured = meter.meter_for(link.params())
    with measured:
        measured.runs(0)
        cupy.empty(10, cupy.float32)
    assert measured.rises(1).tolist() == [40]


def test_a_sum_is_formed_in_an_array_that_nothing_else_shares(chainer: Any, cupy: Any) -> None:
    from stowplan.chainer import backward_pass

    def in_place(first: Any) -> bool:
        terms = [chainer.Variable(first()), chainer.Variable(cupy.ones((4, 4), cupy.float32))]
        address = terms[0].raw_array.data.ptr
        with chainer.no_backprop_mode():
            backward_pass.sum_gradients(terms)
        (total,) = terms
        assert (total.raw_array == 1).all()
        return bool(total.raw_array.data.ptr == address)

    whole, larger = cupy.zeros((4, 4), cupy.float32), cupy.zeros((5, 4), cupy.float32)
    assert in_place(lambda: cupy.zeros((4, 4), cupy.float32))
    assert not in_place(lambda: whole)
    assert not in_place(lambda: larger[1:])
    assert not in_place(lambda: whole.reshape(4, 4))
    for memory in (whole.data, larger.data + 16):  # no views, and yet the same memory
        assert not in_place(lambda memory=memory: cupy.ndarray((4, 4), cupy.float32, memptr=memory))
    assert not whole.any()
    assert not larger.any()
