"""Scheduled training of ResNet-50 on the GPU: lean, under a budget, and swapping to pinned memory; the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stowplan import CupyPool

from .test_training_gpu import SIMULATED, STEPS, State, a_run, resnet50, train

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def chainer(chainer: Any) -> Any:
    """Chainer with settings under which it computes the same bits each time."""
    with chainer.using_config("cudnn_deterministic", True), chainer.using_config("autotune", False):
        yield chainer


@pytest.fixture
def reference(chainer: Any, cupy: Any) -> State:
    """What Chainer computes by itself, each time."""
    plain = a_run(chainer, cupy, resnet50, None)
    again = a_run(chainer, cupy, resnet50, None)
    different = [name for name in plain if plain[name] != again[name]]
    assert not different, f"not deterministic even without a schedule: {different}"
    return plain


def scheduled(chainer: Any, cupy: Any, pool: CupyPool | None = None, **options: Any) -> tuple[State, Any]:
    """Train as `a_run` does, with a scheduler."""
    from stowplan.chainer import Scheduler

    np.random.seed(0)  # noqa: NPY002 (Chainer's initializers draw from it)
    cupy.random.seed(0)
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool().malloc)
    model, loss_of = resnet50(chainer, cupy)
    optimizer = chainer.optimizers.MomentumSGD(lr=0.001, momentum=0.9).setup(model)
    scheduler = Scheduler(optimizer, pool, **options)
    state = train(model, optimizer, loss_of, lambda key: scheduler.step(), scheduler.wait)
    return state, scheduler


def test_lean(chainer: Any, cupy: Any, reference: State) -> None:
    pool = CupyPool(warmup=0)
    found, scheduler = scheduled(chainer, cupy, pool)
    assert [name for name in reference if found[name] != reference[name]] == []
    assert scheduler.stats.lean == STEPS - 1
    assert (scheduler.stats.keeps_graph, scheduler.stats.keeps_gradients) == (None, None)
    assert pool.stats.replayed > 0
    assert pool.stats.arena_bytes == pool.stats.lower_bound
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
