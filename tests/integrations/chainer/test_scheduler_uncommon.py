"""What is out of the common under a schedule: promises that are broken, hidden arrays, two passes, exceptions."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
import pytest
from chainer import function_node

from stowplan import NumpyPool
from stowplan.chainer import Scheduler, patches
from stowplan.chainer.rerun import trust
from stowplan.chainer.schedule_follower import Directions
from stowplan.errors import BudgetError, ScheduleError
from stowplan.scheduling import Schedule, Way, as_recorded, choices, simulate

from . import all_programs  # noqa: F401 (it fills the table)
from .programs import Bomb
from .test_programs import Run
from .training_runs import Everything, RandomScheduler, SparingScheduler, alike, batches, fingerprint


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("whole: skips_spikes", "without optimizer.update"),
        ("by hand: updates_twice", "the gradient of the parameter [Wb] is gone"),
        ("whole: sums_two_passes_late", "a second backward pass before optimizer.update"),
    ],
)
def test_a_loop_that_breaks_its_promise_is_refused(name: str, what: str) -> None:
    error = Run(name, {"early_updates": True}).error
    with pytest.raises(ScheduleError, match=what):
        raise error or AssertionError


@pytest.mark.parametrize(
    ("name", "gradients", "graph"),
    [
        ("whole: nothing_stands_between_as_was_promised", None, None),
        ("by hand: nothing", "the program stands between them", None),
        ("by call: nothing", None, None),
        ("by call: weights_are_tied", "share", None),
        ("by call: adds_clipping_late", "the hook GradientClipping", None),
        ("by call: scales_the_loss_late", "the loss is scaled", None),
        ("trainer: logs_parameter_statistics", "ParameterStatistics", None),
        ("inside: a_forgotten_part", "a backward pass of its own", None),
        ("inside: a_backward_pass", "", "two backward passes"),
        ("by call: activations_are_masked", None, "the program writes on an array"),
        ("inside: the_batch_is_refilled", None, "the program writes on an array"),
        ("inside: a_gate_is_cut_off", None, "a variable is cut off"),
    ],
)
def test_what_speaks_against_early_updates_or_a_schedule_is_said(
    name: str, gradients: str | None, graph: str | None
) -> None:
    stats = Run(name, {"budget": "1 GiB" if graph is None else "70%"}).scheduler.stats
    for reason, expected in ((stats.keeps_gradients, gradients), (stats.keeps_graph, graph)):
        assert reason is None if expected is None else expected in str(reason)
    assert graph is None or stats.recomputed == 0


def test_what_outlives_a_step_without_an_update_counts() -> None:
    """The state, which is made later, and the gradients, which wait for it."""
    run = Run("whole: sums_three_steps", {"budget": "1 GiB"})
    parameters = sum(param.array.nbytes for param in run.program.params())
    assert parameters * 3 <= run.scheduler.stats.retained_bytes <= parameters * 3 + 512


def test_no_operator_goes_from_one_backward_pass_to_another() -> None:
    """The program runs what stands between them: such a schedule would keep to its budget on paper alone."""

    def trained(**options: Any) -> tuple[Any, Scheduler]:
        np.random.seed(0)
        net = chainer.Sequential(L.Linear(64, 64), F.relu).repeat(8)
        opt = chainer.optimizers.SGD().setup(net)
        scheduler = Scheduler(opt, time_limit=2.0, **options)
        for x in np.random.default_rng(1).standard_normal((8, 2, 128, 64)).astype(np.float32):
            with scheduler.step():
                net.cleargrads()
                for half in x:
                    F.sum(net(half) ** 2).backward()
                opt.update()
            scheduler.wait()
            pool.wait()
        return fingerprint(net, opt), scheduler

    pool = NumpyPool()
    with pytest.raises(BudgetError) as caught:
        trained(budget=1000)
    found, scheduler = trained(pool=pool, budget=int(1.02 * (caught.value.least or 0)))
    assert found == trained()[0]
    assert scheduler.stats.recomputed > 0
    for solution in scheduler.solutions:
        assert (np.diff(solution.schedule.order) > 0).all()
    assert pool.plan().arena_bytes <= 1.02 * scheduler.stats.planned_peak


class Departing(Everything):
    """After the fifth step, an operator more at the end, by when the schedule has evicted what earlier ones hide."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, x: Any, t: Any) -> Any:
        self.steps += 1
        h = F.dropout(F.local_response_normalization(F.max_pooling_2d(self.c1(x), 2)), 0.3)
        if self.steps > 5:
            h = F.tanh(h)
        return F.softmax_cross_entropy(self.fc(h), t)


def test_hidden_arrays_come_back_in_a_step_that_departs_from_its_schedule() -> None:
    data = batches(7, 16)
    for seed in range(2):
        scheduler = alike(
            lambda opt, seed=seed: RandomScheduler(opt, seed, 1.0, swap=True), network=Departing, data=data
        )
        assert scheduler.stats.departed == 2


@trust
class Drifting(function_node.FunctionNode):
    """Declared to give the same again, and does not."""

    calls = 0

    def forward(self, inputs: Any) -> Any:
        Drifting.calls += 1
        return (inputs[0] * np.float32(Drifting.calls),)

    def backward(self, indexes: Any, gradients: Any) -> Any:
        return (gradients[0],)


def test_what_a_trial_found_not_to_repeat_does_not_run_again() -> None:
    net = L.Linear(432, 300)
    opt = chainer.optimizers.SGD().setup(net)
    scheduler = SparingScheduler(opt)
    for number, (x, _) in enumerate(batches(2)):
        refused = pytest.raises(ScheduleError, match="Drifting would run again, and may not give the same")
        with refused if number else nullcontext(), scheduler.step():
            h = Drifting().apply((net(x),))[0]
            loss = F.sum(h * h)
            del h
            for _ in range(1 + number):
                loss.backward()


def test_arrays_that_an_earlier_step_dropped_before_any_backward_pass_are_an_error() -> None:
    net = Everything()
    opt = chainer.optimizers.SGD().setup(net)
    scheduler = SparingScheduler(opt, watch=False)
    with scheduler.step():
        loss = net(*batches(1)[0])
    gone = r"reaches into an earlier step, where the arrays of .* are gone"
    with pytest.raises(ScheduleError, match=gone), scheduler.step():
        loss.backward()


def test_an_exception_in_the_middle_leaves_chainer_as_it_was() -> None:
    net = Everything()
    opt = chainer.optimizers.SGD().setup(net)
    scheduler = Scheduler(opt)
    gc.collect()  # schedulers of other tests
    for number, (x, t) in enumerate(batches(6)):
        error = KeyboardInterrupt if number == 3 else None
        with pytest.raises(error) if error else nullcontext(), scheduler.step():
            opt.update(
                lambda x=x, t=t, error=error: Bomb(error).apply((net(x, t),))[0] if error else net(x, t)
            )
        assert function_node.FunctionNode.apply is patches.apply
        assert chainer._backprop._backprop_to_all is patches.backprop_to_all
        assert chainer._backprop_utils.backprop_step is patches.backprop_step
        assert "update" not in vars(opt)
    assert scheduler.stats.lean == 4
    assert not {"grad", "grad_var"} & set(vars(chainer.Parameter))


def test_second_passes_after_the_updates_are_errors_that_say_so() -> None:
    net = Everything()
    opt = chainer.optimizers.SGD().setup(net)
    scheduler = Scheduler(opt)
    kept = []

    def loss(x: Any, t: Any) -> Any:
        kept[:] = [net(x, t)]
        return kept[0]

    for x, t in batches(3):
        with scheduler.step():
            opt.update(loss, x, t)
    with scheduler.step():
        opt.update(loss, x, t)
        with pytest.raises(ScheduleError, match="leaves the step out"):
            kept[0].backward()


@trust
class LetsGo(function_node.FunctionNode):
    """Lets go, in its backward step, of what the program has kept: `HELD`."""

    def forward(self, inputs: Any) -> Any:
        return (inputs[0].copy(),)

    def backward(self, indexes: Any, gradients: Any) -> Any:
        HELD.clear()
        return gradients


HELD: list[Any] = []


class Held(chainer.Chain):
    """Biases that are joined, which no backward step reads; late, the program keeps what comes before `LetsGo`."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        with self.init_scope():
            self.first, self.last = L.Linear(None, 64), L.Linear(64, 10)
            self.layers = chainer.ChainList(*(L.Linear(64, 64, nobias=True) for _ in range(6)))
            self.biases = chainer.ChainList(*(L.Bias(shape=(32,)) for _ in range(12)))

    def forward(self, x: Any, t: Any) -> Any:
        self.steps += 1
        h = self.first(x)
        for number, layer in enumerate(self.layers):
            bias = F.concat([one.b for one in self.biases[2 * number : 2 * number + 2]], 0)
            u, v = F.split_axis(F.linear(h, layer.W, bias), 2, 1)
            h = F.concat([F.tanh(u + v), F.sigmoid(u * v)], 1) + h
            if self.steps > 4:
                HELD.append(h)
            if number in (1, 3):
                h = LetsGo().apply((h,))[0]
        return F.softmax_cross_entropy(self.last(h), t)


class KeepsBiases(Scheduler):
    """Drops every value but the joined biases."""

    def _solve(self, known: Any, budget: int) -> None:
        graph = known.recording.with_seconds(known.seconds)
        joined = {int(s) for s, size, name in zip(graph.storage, graph.size, graph.name, strict=True)
                  if name.startswith("Concat") and size == 256}  # fmt: skip
        assert len(joined) == 6
        way = as_recorded(graph).way.copy()
        for storage, ways in choices(graph).items():
            kept = Way.KEPT if storage in joined or Way.DROPPED not in ways else Way.DROPPED
            way[graph.storage == storage] = kept
        drawn = Schedule(np.arange(len(graph)), way)
        known.directions = Directions.of(known.recording.structure, graph, drawn, simulate(graph, drawn))


def test_an_operator_runs_again_later_than_in_the_schedule() -> None:
    """What it reads has gone by then, and is made again, by operators that the schedule does not run again."""
    scheduler = alike(lambda opt: KeepsBiases(opt, budget=1 << 50), network=Held, data=batches(7, 64))
    assert scheduler.stats.scheduled == 3
    assert scheduler.stats.recomputed > 0
