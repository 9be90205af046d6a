"""Scheduled training on CuPy's arrays, in every test run: kernels are NumPy's, the bookkeeping is the real one."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

from stowplan import CupyPool
from stowplan.errors import MissingDependencyError

try:
    from stowplan.chainer import Scheduler, record_graph
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812

from stowplan.chainer import gradients, scheduler
from stowplan.chainer.rerun import trust
from stowplan.chainer.swapping import SwapCounts
from stowplan.scheduling import as_recorded, simulate

from ...allocator.cupy_host import HostUpstream, cupy
from .cupy_on_host import enable_cuda, on_host, replace_kernels, to_device
from .training_runs import RandomScheduler

BATCH, WIDTH, STEPS = 16, 64, 7


@pytest.fixture(autouse=True)
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    enable_cuda(monkeypatch)
    replace_kernels(monkeypatch)
    monkeypatch.setattr(scheduler, "clock_for", lambda parameters: time.perf_counter)  # no device to wait for


@pytest.fixture
def upstream() -> Iterator[HostUpstream]:
    """Host memory that counts what is alive; CuPy has nothing else while a test runs."""
    upstream = HostUpstream()
    with cupy.cuda.using_allocator(CupyPool(upstream, device=0).malloc):
        yield upstream
    gc.collect()
    assert not upstream.overwritten


@trust
class Rectify(chainer.FunctionNode):
    """Half of what is negative; keeps a mask, as dropout and pooling do."""

    def forward(self, inputs: Any) -> Any:
        (x,) = inputs
        self.mask = (x > 0).astype(np.float32) * 0.5 + 0.5
        return (x * self.mask,)

    def backward(self, indexes: Any, grads: Any) -> Any:
        return (grads[0] * chainer.Variable(self.mask),)


class Network(chainer.Chain):
    """Chainer's functions that run whole on CuPy's operations, a residual, a shared layer, sums of three gradients."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.layers = chainer.ChainList(*(L.Linear(WIDTH, WIDTH) for _ in range(5)))
            self.last = L.Linear(2 * WIDTH, 1)

    def forward(self, x: Any) -> Any:
        h = x
        for layer in self.layers:
            (y,) = Rectify().apply((layer(h),))
            h = F.exp(y * 0.01) + h
        h = F.exp(-0.01 * self.layers[0](h)) + h
        h = F.concat([h, F.square(h * 0.1)], axis=1)
        return F.sum(self.last(h))


def train(
    xp: Any,
    schedule: Callable[[Any], Any],
    optimizer: str = "MomentumSGD",
    network: Any = Network,
    pool: CupyPool | None = None,
) -> tuple[dict[str, bytes], Any]:
    """Train, and return all that was computed; every step begins with what is ready then: schedule, plans of `pool`."""
    np.random.seed(0)
    net = network()
    if xp is cupy:
        net.to_device("@cupy:0")
    opt = getattr(chainer.optimizers, optimizer)(lr=1e-4).setup(net)
    planned = schedule(opt)
    batch = np.random.default_rng(0)
    found = {}
    for number in range(STEPS):
        x = batch.standard_normal((BATCH, WIDTH), dtype=np.float32)
        step = nullcontext() if planned is None else planned.step()
        with step:
            loss = net(to_device(x) if xp is cupy else x)
            net.cleargrads()
            loss.backward()
            opt.update()
            found[f"loss {number}"] = on_host(loss.array).tobytes()
            del loss
        if isinstance(planned, Scheduler):
            planned.wait()
        if pool is not None:
            pool.wait()
    for name, param in net.namedparams():
        assert isinstance(param.array, xp.ndarray)
        found[name] = on_host(param.array).tobytes()
    return found, planned


def plain(opt: Any) -> None:
    return None


@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize("optimizer", ["SGD", "MomentumSGD"])
def test_lean_changes_no_bit(optimizer: str) -> None:
    reference, _ = train(np, plain, optimizer)
    assert train(cupy, plain, optimizer)[0] == reference
    found, planned = train(cupy, Scheduler, optimizer)
    assert found == reference
    assert planned.stats.keeps_gradients is None
    assert planned.stats.keeps_graph is None
    assert planned.stats.lean == STEPS - 1


@pytest.mark.usefixtures("upstream")
def test_random_schedules_change_no_bit() -> None:
    reference, _ = train(np, plain)
    recomputed = 0
    for seed in range(6):
        found, planned = train(cupy, lambda opt, seed=seed: RandomScheduler(opt, seed, 0.6))
        assert found == reference, f"seed {seed}"
        assert (planned.stats.scheduled, planned.stats.departed) == (STEPS - 4, 0)
        assert planned.drawn > 0
        recomputed += planned.stats.recomputed
        (recording,) = planned.recordings
        assert (recording.graph.packed < recording.graph.size).sum() == 5  # the masks
    assert recomputed > 50
    assert all(np.isfinite(np.frombuffer(value, np.float32)).all() for value in reference.values())


class Pooled:
    """Chainer's own steps in a pool, as `Scheduler.step`."""

    def __init__(self, pool: CupyPool) -> None:
        self.pool = pool

    def step(self) -> AbstractContextManager[Any]:
        self.pool.wait()
        return self.pool.step()


def test_what_goes_goes_back_to_the_pool(upstream: HostUpstream) -> None:
    """The live peak of lean steps is the one that their graph predicts, and the arena is no larger."""
    predicted, usual, lean = (
        predicted_peak(),
        CupyPool(upstream, device=0),
        CupyPool(upstream, device=0, warmup=0),
    )
    with cupy.cuda.using_allocator(usual.malloc):
        train(cupy, lambda opt: Pooled(usual))
    train(cupy, lambda opt: Scheduler(opt, pool=lean), pool=lean)
    assert lean.stats.replayed > 0
    assert lean.stats.arena_bytes == lean.stats.lower_bound
    peak = lean.profile().planned_peak
    assert peak < 0.8 * usual.profile().planned_peak
    assert peak == pytest.approx(predicted, rel=0.02)
    gc.collect()
    assert upstream.live_bytes == lean.stats.arena_bytes + usual.stats.arena_bytes


def predicted_peak() -> float:
    """Of lean steps, as recorded."""
    opt = chainer.optimizers.MomentumSGD(lr=1e-4).setup(Network())
    opt.target.to_device("@cupy:0")

    def step() -> None:
        loss = opt.target(to_device(np.ones((BATCH, WIDTH), np.float32)))
        opt.target.cleargrads()
        loss.backward()
        opt.update()

    graph = record_graph(opt, step)
    return float(simulate(graph, as_recorded(graph)).peak)


def test_a_budget_is_kept_and_the_schedule_followed(upstream: HostUpstream) -> None:
    reference, _ = train(np, plain)
    _, recorded = train(cupy, lambda opt: Scheduler(opt, budget="1 GiB"))
    retained = recorded.stats.retained_bytes
    budget = retained + int(0.65 * recorded.stats.planned_peak)
    pool = CupyPool(upstream, device=0, warmup=0)
    found, planned = train(cupy, lambda opt: Scheduler(opt, pool=pool, budget=budget))
    assert found == reference
    assert planned.stats.scheduled == STEPS - 4
    assert planned.stats.departed == 0
    assert planned.stats.recomputed > 0
    assert planned.stats.retained_bytes == sum(
        2 * param.array.nbytes
        for param in planned._parameters()  # with the momentum
    )
    assert pool.wait(60)
    # In units of 512 bytes, of blocks of some KiB; what is kept depends on the seconds measured.
    assert 0 < pool.plan().arena_bytes <= 1.25 * (budget - retained)


class HostSwap:
    """In the place of `PinnedSwap`, which needs a stream: the same calls, and copies made at once."""

    def __init__(self) -> None:
        self.counts = SwapCounts()

    def evict(self, array: Any) -> HostTicket:
        assert isinstance(array, cupy.ndarray)
        assert array.flags.c_contiguous
        return HostTicket(self, array)

    def close(self) -> None:
        pass


class HostTicket:
    def __init__(self, swap: HostSwap, array: Any) -> None:
        self.swap, self.array, self.copy = swap, array, on_host(array).copy()

    def wait_evicted(self) -> None:
        self.array = None
        self.swap.counts.evicted += 1

    def start_fetch(self, out: Any) -> None:
        on_host(out)[...] = self.copy

    def wait_fetched(self) -> None:
        self.swap.counts.fetched += 1

    def close(self) -> None:
        self.copy = None


@pytest.mark.usefixtures("upstream")
def test_what_is_swapped_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    reference, _ = train(np, plain)
    swaps: list[HostSwap] = []

    def swap() -> HostSwap:
        swaps.append(HostSwap())
        return swaps[-1]

    monkeypatch.setattr(scheduler, "PinnedSwap", swap)
    for seed in range(4):
        found, planned = train(cupy, lambda opt, seed=seed: RandomScheduler(opt, seed, 0.7, swap=True))
        assert found == reference, f"seed {seed}"
        assert planned.stats.keeps_values is None
    assert len(swaps) == 4  # one for each scheduler
    assert all(0 < one.counts.fetched <= one.counts.evicted for one in swaps)


@pytest.mark.usefixtures("upstream")
def test_a_sum_is_formed_in_an_array_that_nobody_else_sees() -> None:
    def in_place(first: Callable[[], Any]) -> bool:
        terms = [chainer.Variable(first()), chainer.Variable(to_device(np.ones((4, 4), np.float32)))]
        address = terms[0].raw_array.data.ptr
        with chainer.no_backprop_mode():
            gradients.sum_gradients(terms)
        (total,) = terms
        assert (on_host(total.raw_array) == 1).all()
        return bool(total.raw_array.data.ptr == address)

    def zeros(rows: int = 4) -> Any:
        return cupy.zeros((rows, 4), np.float32)

    def pointer() -> Any:
        return cupy.ndarray((4, 4), np.float32, memptr=whole.data)

    def offset() -> Any:
        return cupy.ndarray((4, 4), np.float32, memptr=larger.data + 16)

    whole, larger = zeros(), zeros(5)
    assert in_place(zeros)
    assert not in_place(lambda: whole)
    assert not in_place(lambda: larger[1:])
    assert not in_place(lambda: whole.reshape(4, 4))
    for shares in (pointer, offset):  # no views, and yet the same memory
        assert shares().base is None
        assert not in_place(shares)
    assert (on_host(whole) == 0).all()
    assert (on_host(larger) == 0).all()
