"""Parameters and state that are out of memory between their uses: bit by bit Chainer's, whoever reads them."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
import pytest

import stowplan
from stowplan.chainer import Scheduler, parameter_swap, scheduler
from stowplan.errors import ScheduleError, StowplanError
from stowplan.swapping import SwapFile

from .test_random_networks import RandomNetwork
from .training_runs import HOOKS, Everything, RandomScheduler, SparingScheduler, alike, batches, fingerprint


@pytest.fixture(autouse=True)
def all_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all parameters swapped, the small ones of tests, too, and without waiting for the disk."""
    monkeypatch.setattr(parameter_swap, "SMALL", 1)
    monkeypatch.setattr(scheduler, "SwapFile", partial(SwapFile, keep_cache=True))


WAYS: dict[str, Callable[[Any], Scheduler]] = {
    "lean": lambda opt: Scheduler(opt, swap_parameters=True),
    "lean from the first step": lambda opt: Scheduler(opt, swap_parameters=True, watch=False),
    "sparing": lambda opt: SparingScheduler(opt, swap_parameters=True),
    "recomputed": lambda opt: RandomScheduler(opt, 1, 0.6, swap_parameters=True),
    "recomputed and swapped": lambda opt: RandomScheduler(opt, 2, 0.6, swap=True, swap_parameters=True),
}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("way", WAYS)
def test_hooks(way: str, hook: str) -> None:
    if way == "lean from the first step" and hook == "noise":
        pytest.skip("gradients are read")
    trained = alike(WAYS[way], hooks=HOOKS[hook])
    assert trained.stats.swapped_parameters > 50
    assert trained.stats.keeps_parameters is None


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdaDelta", "SMORMS3"])
@pytest.mark.parametrize("loop", ["by hand", "clip"])
def test_optimizers(optimizer: str, loop: str) -> None:
    alike(WAYS["lean"], WAYS["recomputed"], optimizer=optimizer, loop=loop)


@pytest.mark.parametrize("seed", range(10))
def test_random_networks(seed: int) -> None:
    optimizer, way = ("Adam", "MomentumSGD")[seed % 2], [*WAYS][seed % len(WAYS)]
    alike(WAYS[way], optimizer=optimizer, network=lambda: RandomNetwork(seed))


# --- programs that look at parameters ---------------------------------------------------------------------------------


class Program:
    """A training whose steps are followed by something else."""

    def __init__(self, after: Callable[[Program], None], options: dict[str, Any] | None) -> None:
        np.random.seed(0)
        self.net, self.after = Everything(), after
        self.optimizer = chainer.optimizers.MomentumSGD(0.01).setup(self.net)
        self.scheduler = None if options is None else Scheduler(self.optimizer, **options)
        self.seen: list[float] = []
        self.held: Any = None
        self.folder = Path()

    def run(self, steps: int = 7) -> tuple[str, list[float]]:
        for x, t in batches(steps):
            self.batch = x, t
            if self.scheduler is None:
                self.optimizer.update(self.net, x, t)
            else:
                with self.scheduler.step():
                    self.optimizer.update(self.net, x, t)
                self.scheduler.wait()
            self.after(self)
        return fingerprint(self.net, self.optimizer), self.seen


def read(program: Program) -> None:
    program.seen += [float((p.array**2).sum()) for p in program.net.params()]


def write_in_place(program: Program) -> None:
    for param in program.net.params():
        np.clip(param.array, -0.05, 0.05, out=param.array)


def replace(program: Program) -> None:
    program.net.fc.W.array = program.net.fc.W.array * np.float32(0.99)
    program.net.c2.b.copydata(program.net.c1.b)


def hold_an_array(program: Program) -> None:
    if program.held is None:
        program.held = program.net.fc.W.array, program.net.c1.W.array[2:]
    whole, part = program.held
    whole *= np.float32(0.99)
    part += np.float32(0.001)


def write_state(program: Program) -> None:
    for param in program.net.params():
        for name in param.update_rule.state:
            param.update_rule.state[name] *= np.float32(0.5)


def hold_a_state(program: Program) -> None:
    if program.held is None:
        program.held = program.net.fc.W.update_rule.state
    program.held["v"] *= np.float32(0.5)


def evaluate(program: Program) -> None:
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        program.seen.append(float(program.net(*program.batch).array))


def save_and_load(program: Program) -> None:
    path = program.folder / "snapshot.npz"
    chainer.serializers.save_npz(path, program.optimizer)
    chainer.serializers.save_npz(path.with_name("net.npz"), program.net)
    for param in program.net.params():
        param.array[...] = 0
    chainer.serializers.load_npz(path, program.optimizer)
    chainer.serializers.load_npz(path.with_name("net.npz"), program.net)


def copies(program: Program) -> None:
    other = copy.deepcopy(program.net)
    other.fc.W.array *= 2
    again = pickle.loads(pickle.dumps(program.net.fc.W))
    rule = pickle.loads(pickle.dumps(program.net.fc.W.update_rule.state))
    assert type(rule) is dict
    assert np.array_equal(again.array, program.net.fc.W.array)
    assert np.array_equal(copy.copy(program.net.fc.W).array, again.array)


def share(program: Program) -> None:
    if program.held is None:
        program.held = program.net.fc.copy(mode="share")
    program.held.W.array[0] += np.float32(0.01)


def two_parameters_of_one_array(program: Program) -> None:
    if program.held is None:
        program.held = chainer.Parameter(program.net.fc.W.array)
    program.held.array[0] += np.float32(0.01)


PROGRAMS = (
    read,
    write_in_place,
    replace,
    hold_an_array,
    write_state,
    hold_a_state,
    evaluate,
    save_and_load,
    copies,
    share,
    two_parameters_of_one_array,
)
OPTIONS: dict[str, dict[str, Any]] = {"lean": {}, "budget": {"budget": "120 KiB", "watch": False}}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("after", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_that_look_at_parameters(
    after: Callable[[Program], None], options: str, tmp_path: Path
) -> None:
    found = []
    for way in (None, {**OPTIONS[options], "swap_parameters": True}):
        program = Program(after, way)
        program.folder = tmp_path
        found.append(program.run())
    assert found[0] == found[1]
    assert program.scheduler.stats.swapped_parameters > 50
    held = after in (hold_an_array, two_parameters_of_one_array)
    reason = program.scheduler.stats.keeps_parameters
    assert reason is None if not held else reason is not None and "refers to" in reason


class Reading(Everything):
    """Reads and writes parameters in the middle of the forward pass, and evaluates something beside."""

    def forward(self, x: Any, t: Any) -> Any:
        self.fc.b.array += np.float32(0.01) * self.c1.W.array.sum()
        with chainer.no_backprop_mode():
            beside = F.sum(self.c1(x) ** 2).array
        return super().forward(x, t) + beside * 0


class Viewing(Everything):
    """Writes to a parameter by a view that a function of Chainer's has given, or by one of the program's own."""

    def forward(self, x: Any, t: Any) -> Any:
        for view in (
            F.transpose(self.c3.W),
            F.reshape(self.shared.W, (-1,)),
            Writing().apply((self.c2.W,))[0],
        ):
            view.array[...] *= np.float32(0.9)
        del view
        return super().forward(F.identity(x), t)


class Writing(chainer.FunctionNode):  # type: ignore[misc]
    def forward(self, inputs: Any) -> Any:
        inputs[0][...] += np.float32(0.01)
        return (inputs[0].copy(),)


@pytest.mark.parametrize("network", [Reading, Viewing])
@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_reads_or_writes_parameters_as_it_runs(way: str, network: type[Everything]) -> None:
    alike(WAYS[way], network=network)


class Failing(Everything):
    """Raises in every third step: in the forward pass, or by the loss in the backward one."""

    calls = 0

    def forward(self, x: Any, t: Any) -> Any:
        self.calls += 1
        loss = super().forward(x, t)
        if self.calls % 3 == 2:
            raise KeyboardInterrupt
        return loss


def test_steps_that_fail() -> None:
    def run(swap: bool) -> str:
        np.random.seed(0)
        net = Failing()
        optimizer = chainer.optimizers.Adam().setup(net)
        runs = Scheduler(optimizer, swap_parameters=True, budget="120 KiB", watch=False) if swap else None
        for x, t in batches(9):
            try:
                if runs is None:
                    optimizer.update(net, x, t)
                else:
                    with runs.step():
                        optimizer.update(net, x, t)
                    runs.wait()
            except KeyboardInterrupt:
                pass
        return fingerprint(net, optimizer)

    assert run(True) == run(False)


def test_two_optimizers_and_a_step_that_is_left_out() -> None:
    def run(swap: bool) -> str:
        np.random.seed(0)
        one, two = L.Linear(12, 12), L.Linear(12, 12)
        optimizers = [chainer.optimizers.Adam().setup(one), chainer.optimizers.MomentumSGD().setup(two)]
        runs = Scheduler(optimizers, swap_parameters=True) if swap else None
        for i in range(7):
            x = np.full((4, 12), i, np.float32)
            with runs.step(schedule=i != 4) if runs else nullcontext():
                loss = F.sum(F.tanh(two(F.tanh(one(x)))))
                one.cleargrads()
                two.cleargrads()
                loss.backward()
                for optimizer in optimizers:
                    optimizer.update()
        return fingerprint(one, two, *optimizers)

    assert run(True) == run(False)


# --- memory, and what cannot be ---------------------------------------------------------------------------------------


class Wide(chainer.Chain):
    """Layers whose parameters and state are most of what a step has alive."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.layers = chainer.ChainList(*(L.Linear(256, 256) for _ in range(8)))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = F.relu(layer(x))
        return F.sum(x)


def test_a_budget_below_the_parameters_is_kept() -> None:
    """Eight layers of 256 KiB take 2 MiB, and their state 2 MiB; a layer, its state and its gradient 768 KiB."""
    net, pool = Wide(), stowplan.NumpyPool()
    optimizer = chainer.optimizers.MomentumSGD().setup(net)
    runs = Scheduler(optimizer, pool, budget="1200 KiB", swap_parameters=True, watch=False)
    for _ in range(12):
        with runs.step():
            optimizer.update(net, np.ones((4, 256), np.float32))
        runs.wait()
    stats = runs.stats
    assert stats.scheduled >= 8
    assert stats.retained_bytes < 16  # the gradient of the loss
    assert 768 << 10 < stats.planned_peak <= 1200 << 10
    assert 768 << 10 < pool.stats.lower_bound <= stats.planned_peak + (16 << 10)
    assert pool.stats.replayed > 0


def test_no_room_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "SwapFile", partial(SwapFile, budget=40 << 10))
    runs = alike(WAYS["lean"])
    assert "no room" in str(runs.stats.keeps_parameters)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_fork_is_refused() -> None:
    net = Wide()
    optimizer = chainer.optimizers.SGD().setup(net)
    runs = Scheduler(optimizer, swap_parameters=True, watch=False)
    with runs.step():
        optimizer.update(net, np.ones((4, 256), np.float32))
    child = os.fork()
    if child == 0:
        try:
            net.layers[0].W.array.sum()
        except StowplanError as error:
            os._exit(0 if "belongs to the process that made it" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.isfinite(net.layers[0].W.array).all()


def test_what_cannot_be_vouched_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = chainer.optimizers.SGD().setup(Wide())
    for module, name, other, match in (
        (parameter_swap.sys, "version_info", (3, 14), r"expected Python 3\.13 or older"),
        (parameter_swap, "np", object(), "expected parameters on the host"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, other)
            with pytest.raises(ScheduleError, match=match):
                Scheduler(optimizer, swap_parameters=True)


def test_a_thread_that_reads_all_the_time() -> None:
    """Each array that it gets is a whole one: no parameter is empty, or half of another step's."""
    net = Wide()
    optimizer = chainer.optimizers.MomentumSGD().setup(net)
    runs = Scheduler(optimizer, swap_parameters=True, watch=False)
    over, wrong = threading.Event(), []

    def read() -> None:
        while not over.is_set():
            for param in net.params():
                if param.array is None or any(v is None for v in (param.update_rule.state or {}).values()):
                    wrong.append(param.name)

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(10):
        with runs.step():
            optimizer.update(net, np.ones((4, 256), np.float32))
    over.set()
    thread.join()
    assert not wrong
    alone = Wide()
    alone.copyparams(net)
    assert all(np.isfinite(param.array).all() for param in alone.params())
