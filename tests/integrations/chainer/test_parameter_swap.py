"""Parameters and state that are out of memory between their uses: bit by bit Chainer's, whoever reads them."""

from __future__ import annotations

import os
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

from . import all_programs  # noqa: F401 (it fills the table)
from .test_programs import Run, held
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


@pytest.mark.parametrize(
    ("way", "hook"),
    [
        pytest.param(way, hook, marks=() if (i - j) % 5 < 2 else pytest.mark.slow)
        for i, way in enumerate(WAYS)
        for j, hook in enumerate(HOOKS)
    ],
)
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


@pytest.mark.parametrize("seed", [n if n < 5 else pytest.param(n, marks=pytest.mark.slow) for n in range(10)])
def test_random_networks(seed: int) -> None:
    optimizer, way = ("Adam", "MomentumSGD")[seed % 2], [*WAYS][seed % len(WAYS)]
    alike(WAYS[way], optimizer=optimizer, network=lambda: RandomNetwork(seed))


# --- programs that look at parameters ---------------------------------------------------------------------------------

PROGRAMS = (
    "by hand: decays_weights",
    "by hand: loads_late",
    "by hand: evaluates",
    "by call: loads_an_older_state_late",
    "by call: parameters_become_views_late",
    "inside: a_weight_is_replaced",
    "whole: two_models",
    "whole: a_loss_function_fails",
    "after: the_best_is_kept",
    "after: weights_are_clamped",
    "after: weights_are_averaged",
    "after: the_model_is_pickled",
    "after: the_optimizer_s_state_is_held_and_written",
)
"""Kinds of programs.py."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_look_at_parameters(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain = Run(name, None)
    for options in ({}, {"budget": "70%"}):
        run = held(name, {**options, "swap_parameters": True}, plain)
        assert run.error is not None or run.scheduler.stats.swapped_parameters > 0


def test_an_array_that_the_program_holds_stays() -> None:
    def trained(swap: bool) -> tuple[str, Any]:
        np.random.seed(0)
        net = Everything()
        optimizer = chainer.optimizers.MomentumSGD(0.01).setup(net)
        runs = Scheduler(optimizer, swap_parameters=True) if swap else None
        held: list[Any] = []
        for x, t in batches(6):
            with runs.step() if runs else nullcontext():
                optimizer.update(net, x, t)
            held = held or [net.fc.W.array, net.c1.W.array[2:], chainer.Parameter(net.c2.W.array).array]
            for array in held:
                array *= np.float32(0.99)
        return fingerprint(net, optimizer), runs

    found, runs = trained(swap=True)
    assert found == trained(swap=False)[0]
    assert "refers to" in str(runs.stats.keeps_parameters)


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


@pytest.mark.parametrize("seed", range(4))
def test_a_late_write_on_what_has_left_is_refused_before_the_pass(seed: int) -> None:
    np.random.seed(0)
    net = chainer.ChainList(*(L.Linear(64, 64) for _ in range(5)))
    opt = chainer.optimizers.Adam().setup(net)
    scheduler = RandomScheduler(opt, seed, 0.8, swap_parameters=True)

    def loss(x: Any, writes: bool) -> Any:
        for number, link in enumerate(net):
            x = F.tanh(link(x))
            if writes and number == 2:
                net[0].W.array[...] *= np.float32(0.5)
        return F.sum(x)

    for step in range(7):
        x = np.random.default_rng(step).random((32, 64), dtype=np.float32)
        before = {name: param.array.copy() for name, param in net.namedparams()}
        refuses = pytest.raises(ScheduleError, match="writes on an array") if step == 5 else nullcontext()
        with refuses, scheduler.step():
            opt.update(loss, x, step == 5)
        if step == 5:
            before["/0/W"] *= np.float32(0.5)
            assert all((param.array == before[name]).all() for name, param in net.namedparams())
        scheduler.wait()


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
