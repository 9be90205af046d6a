"""Scheduled training on NumPy: bit by bit Chainer's, whatever the schedule; and what speaks against one is found."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import accumulate
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
import pytest
from chainer import function_node

from stowplan import NumpyPool, NumpyRecorder
from stowplan.chainer import Scheduler, Updater, backward_pass, patches, record_graph
from stowplan.chainer.recorder import Recording, RecordingStep
from stowplan.errors import BudgetError, GraphError, PoolError, ProfileError, ScheduleError
from stowplan.scheduling import as_recorded, lean, simulate
from stowplan.swapping import SwapError, SwapFile

from ...running import traced
from .training_runs import Deep, Everything, RandomScheduler, alike, batches, fingerprint, plain, train


def test_random_schedules_swap() -> None:
    evicted = 0
    for seed in range(3):
        _, scheduler = train(lambda opt, seed=seed: RandomScheduler(opt, seed, 0.7, swap=True), steps=7)
        assert scheduler.stats.swapped == scheduler._swap.counts.fetched == scheduler._swap.counts.evicted
        evicted += scheduler._swap.counts.evicted
    assert evicted > 50


def test_without_room_for_the_swap_the_rest_of_the_schedule_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, array: Any) -> Any:
        raise SwapError("no room")

    monkeypatch.setattr(SwapFile, "evict", full)
    scheduler = alike(lambda opt: RandomScheduler(opt, 1, 0.7, swap=True), steps=7)
    assert "no room" in str(scheduler.stats.keeps_values)
    assert scheduler.stats.recomputed > 0


def live_peak(step: Callable[[], object], steps: int = 3) -> int:
    recorder = NumpyRecorder(small=1033)
    with recorder:
        for _ in range(steps):
            with recorder.step():
                step()
    return int(recorder.profile().planned_peak)


def lean_peak(network: Callable[[], Any], data: tuple[Any, Any]) -> int:
    """Live peak of lean steps whose batch belongs to them, as in an updater."""
    np.random.seed(0)
    net = network()
    opt = chainer.optimizers.Adam().setup(net)
    scheduler = Scheduler(opt)

    def step() -> None:
        if isinstance(net, Everything):  # else the step before is alive until this one makes its own
            net.y = None
            net.lstm.reset_state()
        with scheduler.step():
            opt.update(net, data[0].copy(), data[1].copy())

    step()
    return live_peak(step)


@pytest.fixture(name="traced")
def is_traced() -> Iterator[None]:
    """Have memory traced."""
    with traced():
        yield


def test_gradients_that_are_left_to_the_next_step_count(traced: None) -> None:
    """The judge's gradients from the maker's pass stay until the judge's next update begins."""
    x = np.ones((64, 512), np.float32)
    maker, judge = (chainer.Sequential(*(L.Linear(512, 512) for _ in range(4))) for _ in range(2))
    opts = [chainer.optimizers.SGD().setup(net) for net in (maker, judge)]

    def judged(y: Any) -> Any:
        F.argmax(F.tile(y, (64, 1)))  # the step's peak, before the judge's gradients are cleared
        return F.average(y)

    def step() -> None:
        with chainer.no_backprop_mode():
            made = maker(x).array
        opts[1].update(lambda: judged(judge(made)))
        opts[0].update(lambda: F.average(judge(maker(x))))

    scheduler = Scheduler(opts, budget="1 GiB", watch=False, early_updates=False)
    for _ in range(4):
        tracemalloc.reset_peak()
        with scheduler.step():
            step()
        measured = tracemalloc.get_traced_memory()[1]
    (recording,) = scheduler.recordings
    predicted = simulate(recording.graph, lean(recording.graph)).peak + scheduler.stats.retained_bytes
    left = sum(param.grad.nbytes for param in judge.params())
    assert measured == pytest.approx(predicted, abs=0.2 * left)


@pytest.mark.parametrize("network", [Everything, Deep])
def test_the_recorded_graph_predicts_the_lean_peak(network: Any) -> None:
    data = batches(1, 32)[0]
    np.random.seed(0)
    net = network()
    opt = chainer.optimizers.Adam().setup(net)
    graph = record_graph(opt, lambda: opt.update(net, *data))
    predicted = simulate(graph, as_recorded(graph)).peak
    assert lean_peak(network, data) == pytest.approx(predicted, rel=0.01)


def test_what_cannot_be_recorded_is_said() -> None:
    net = L.Linear(3, 3)
    opt = chainer.optimizers.SGD().setup(net)
    x = np.ones((2, 3), np.float32)

    def step() -> None:
        y = net(x)
        net.cleargrads()
        y.grad = x  # one array is the input and the loss's gradient
        y.backward()
        opt.update()

    with pytest.raises(ProfileError, match=r"reads gradient of the loss .*; expected a training step"):
        record_graph(opt, step)


def test_a_sum_is_formed_in_an_array_that_nothing_else_shares() -> None:
    def in_place(first: Callable[[], Any]) -> bool:
        terms = [chainer.Variable(first()), chainer.Variable(np.ones((4, 4), np.float32))]
        address = terms[0].array.ctypes.data
        with chainer.no_backprop_mode():
            backward_pass.sum_gradients(terms)
        assert (terms[0].array == 1).all()
        return bool(terms[0].array.ctypes.data == address)

    whole = np.zeros((4, 4), np.float32)
    assert in_place(lambda: np.zeros((4, 4), np.float32))
    for shared in (lambda: whole, lambda: whole.reshape(4, 4), lambda: np.zeros((5, 4), np.float32)[1:]):
        assert not in_place(shared)
    assert (whole == 0).all()


def test_a_budget_is_kept_in_the_pool_s_arena_and_changes_no_bit() -> None:
    data = batches(12, 32)
    peak = lean_peak(Deep, data[0])
    retained = train(Scheduler, data=data[:1], network=Deep)[1].stats.retained_bytes
    budget = retained + int(0.7 * peak)
    pool = NumpyPool(warmup=0, small=1033)
    scheduler = alike(lambda opt: Scheduler(opt, pool=pool, budget=budget), data=data, network=Deep)
    assert scheduler.stats.scheduled == 8
    assert scheduler.stats.recomputed > 0
    assert 0 < scheduler.stats.planned_peak <= budget - retained
    assert pool.wait(600)
    assert pool.plan().arena_bytes <= 1.02 * (budget - retained)


def test_budgets_out_of_reach_are_errors_with_the_least_in_reach() -> None:
    with pytest.raises(BudgetError, match="the least that was found is") as caught:
        train(lambda opt: Scheduler(opt, budget=1000), steps=8)
    assert caught.value.least > 1000
    assert "of workspace and" in caught.value.floor
    assert caught.value.floor in str(caught.value)
    assert function_node.FunctionNode.apply is patches.apply


def test_other_structures_depart_and_get_a_schedule_of_their_own() -> None:
    usual, short = batches(1)[0], batches(1, 2)[0]
    data = [usual] * 6 + [short] + [usual] * 2 + [short] * 6 + [usual] * 2
    scheduler = alike(lambda opt: Scheduler(opt, budget="1 GiB"), data=data)
    assert scheduler.stats.departed >= 2
    assert scheduler.stats.schedules == 2


WINDOWS = (4,) * 5 + (2,) * 6 + (4, 2)


def trained_on_windows(schedule: Callable[[Any], Scheduler | None]) -> Any:
    """Train a recurrent network of two layers, whose state stays from window to window."""
    np.random.seed(0)
    net = chainer.Sequential(L.EmbedID(20, 16), L.LSTM(16, 32), L.LSTM(32, 32), L.Linear(32, 20))
    opt = chainer.optimizers.Adam().setup(net)
    scheduler = schedule(opt)
    text = np.random.default_rng(1).integers(0, 20, (16, sum(WINDOWS) + 1), dtype=np.int32)
    for end, length in zip(accumulate(WINDOWS), WINDOWS, strict=True):
        with scheduler.step() if scheduler else nullcontext():
            letters = range(end - length, end)
            loss = sum(F.softmax_cross_entropy(net(text[:, t]), text[:, t + 1]) for t in letters)
            net.cleargrads()
            loss.backward()
            loss.unchain_backward()
            opt.update()
            del loss
        if scheduler is not None:
            scheduler.wait()
    return fingerprint(net, opt), scheduler


@pytest.mark.parametrize("fails", [(False, False), (True,), (False, True)])
def test_state_from_a_step_of_another_structure_and_steps_that_cannot_be_recorded(
    monkeypatch: pytest.MonkeyPatch, fails: tuple[bool, ...]
) -> None:
    """Those that cannot run lean."""
    recording, failing = RecordingStep.recording, iter(fails)

    def fail_or_not(step: RecordingStep) -> Recording:
        if next(failing):
            raise GraphError("a cycle?")
        return recording(step)

    monkeypatch.setattr(RecordingStep, "recording", fail_or_not)
    warned = pytest.warns(RuntimeWarning, match="cannot be recorded: a cycle?")
    with warned if any(fails) else nullcontext():
        found, scheduler = trained_on_windows(lambda opt: Scheduler(opt, budget="1 GiB"))
    assert found == trained_on_windows(plain)[0]
    assert scheduler.stats.schedules == fails.index(True) if any(fails) else 2
    assert scheduler.stats.unrecorded == ("a cycle?" if any(fails) else None)


def test_a_value_of_the_step_before_is_not_taken_for_this_step_s() -> None:
    class Net(chainer.Chain):  # type: ignore[misc]
        """Reads what it has made, or, each time after the fifth, what it made in the step before."""

        def __init__(self) -> None:
            super().__init__(one=L.Linear(432, 400), other=L.Linear(400, 3))
            self.steps, self.made = 0, None

        def forward(self, x: Any, t: Any) -> Any:
            self.steps += 1
            before = self.made
            if before is not None:
                before.unchain()
            self.made = F.sigmoid(self.one(x))
            y = self.other(before if self.steps > 5 else self.made)
            del before
            return F.sum(y) + F.sum(self.made)

    scheduler = alike(lambda opt: RandomScheduler(opt, 0, 1.0), network=Net, steps=8)
    assert scheduler.stats.departed > 0


@pytest.mark.parametrize("when", ["before", "after", "after, and lets go in the pass"])
def test_a_pass_that_would_stop_for_want_of_an_array_updates_no_parameter(when: str) -> None:
    class Net(chainer.Chain):  # type: ignore[misc]
        """Cuts off, in its last step, what a schedule would run again in the midst of the backward pass."""

        def __init__(self) -> None:
            super().__init__(one=L.Linear(432, 300), other=L.Linear(300, 200), last=L.Linear(200, 10))
            self.cuts = ""
            self.held: list[Any] = []

        def forward(self, x: Any, t: Any) -> Any:
            h = F.exp(F.tanh(self.one(x)))
            side = F.sum(h)
            if self.cuts == "before":
                side.unchain_backward()
            y = self.last(F.tanh(self.other(h)))
            self.held += [h] if "lets go" in self.cuts else []
            del h
            if self.cuts.startswith("after"):
                side.unchain_backward()
            return F.softmax_cross_entropy(y, t)

    class LetsGo(chainer.FunctionHook):  # type: ignore[misc]
        def backward_postprocess(self, *_: Any) -> None:
            net.held.clear()

    refused = halves = 0
    for seed in range(8):
        np.random.seed(0)
        net = Net()
        opt = chainer.optimizers.Adam().setup(net)
        scheduler = RandomScheduler(opt, seed, 0.7, early_updates=True)
        for number, (x, t) in enumerate(batches(6)):
            before, net.cuts = fingerprint(net, opt), when if number == 4 else ""
            try:
                with scheduler.step(), LetsGo():
                    opt.update(net, x, t)
            except ScheduleError:
                refused += 1
                halves += fingerprint(net, opt) != before
            scheduler.wait()
    assert refused > 1
    assert halves == 0


def test_a_structure_out_of_the_budget_s_reach_comes_as_near_as_it_can() -> None:
    usual, large = batches(1)[0], batches(1, 16)[0]
    with pytest.raises(BudgetError) as caught:
        train(lambda opt: Scheduler(opt, budget=1000), data=[large] * 8)
    data = [usual] * 6 + [large] * 6
    scheduler = alike(lambda opt: Scheduler(opt, budget=caught.value.least - 1000), data=data)
    assert scheduler.stats.schedules == 2
    assert [solution.peak > scheduler._left for solution in scheduler.solutions] == [True, False]


def test_steps_do_not_nest() -> None:
    opt = chainer.optimizers.SGD().setup(L.Linear(2, 2))
    scheduler = Scheduler(opt)
    with scheduler.step(), pytest.raises(PoolError, match="do not nest"), scheduler.step():
        pass


@pytest.mark.parametrize("budget", ["much", -1, True, "1 parsec", "150%", "0%", "-5%"])
def test_a_budget_is_a_number_of_bytes_or_a_share(budget: Any) -> None:
    with pytest.raises(ValueError, match=r"expected bytes, .* or a share .* above 0% and up to 100%"):
        Scheduler(chainer.optimizers.SGD().setup(L.Linear(2, 2)), budget=budget)


def test_a_share_is_of_the_peak_without_recomputation() -> None:
    data = batches(8, 32)
    scheduler = alike(lambda opt: Scheduler(opt, budget="80%"), data=data, network=Deep)
    (recording,), stats = scheduler.recordings, scheduler.stats
    plain = simulate(recording.graph, as_recorded(recording.graph)).peak + stats.retained_bytes
    assert stats.recomputed > 0
    assert 0.7 * plain < stats.planned_peak + stats.retained_bytes <= 0.8 * plain
    assert alike(lambda opt: Scheduler(opt, budget="100%"), data=data, network=Deep).stats.recomputed == 0


def test_the_first_steps_are_in_the_pool_s_statistics(traced: None) -> None:
    """The first one runs as Chainer runs it, and is the run's peak."""
    pool = NumpyPool()
    peaks, stats = [], []
    net = Deep()
    scheduler = Scheduler(opt := chainer.optimizers.SGD().setup(net), pool)
    for x, t in batches(3, 128):
        tracemalloc.reset_peak()
        with scheduler.step():
            opt.update(net, x, t)
        peaks.append(tracemalloc.get_traced_memory()[1])
        stats.append(pool.stats.peak_live_bytes)
    assert stats[0] == stats[-1]
    assert stats[0] == pytest.approx(peaks[0], rel=0.1)
    assert peaks[-1] < 0.9 * peaks[0]


def test_what_is_no_optimizer_or_pool_is_refused_at_once() -> None:
    bare = chainer.optimizers.SGD()
    with pytest.raises(ScheduleError, match="optimizer is None"):
        Scheduler(None)
    with pytest.raises(ScheduleError, match=r"SGD has no model; expected optimizer\.setup"):
        Scheduler([bare])
    with pytest.raises(ScheduleError, match="pool is 3"):
        Scheduler(bare.setup(L.Linear(2, 2)), 3)  # type: ignore[arg-type]


def test_an_updater_wants_an_optimizer_named_main() -> None:
    optimizer = chainer.optimizers.SGD().setup(L.Linear(2, 2))
    iterator = chainer.iterators.SerialIterator([1, 2], 1)
    with pytest.raises(ValueError, match="named gen; expected one named main"):
        Updater(iterator, {"gen": optimizer})
