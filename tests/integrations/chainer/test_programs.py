"""Programs that change between steps, or are out of the common: Chainer's bits after every step, or an error before."""

from __future__ import annotations

import contextlib
import gc
import re
import tracemalloc
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan import NumpyPool
from stowplan.chainer import Scheduler
from stowplan.errors import BudgetError, StowplanError

from . import all_programs  # noqa: F401 (it fills the table)
from .programs import KINDS, STEPS, Program
from .programs_with_trainer import TRAINERS, run_trainer

SAMPLE = 12
ALWAYS = (
    *("whole: a_loss_function_fails", "whole: hooks_that_measure_time"),
    *("by call: rules_are_shared", "inside: a_gradient_penalty", "inside: a_weight_s_array_is_an_input"),
)
"""One kind of so many is tried each time, and these, for what no other test runs; `make thorough` tries all. In the
first of them, steps without a schedule once refused to run operators again that a schedule drops."""


class Run:
    """A kind's program, trained by a scheduler of these options or plainly: its states after each step, or an error."""

    def __init__(self, name: str, options: dict[str, Any] | None) -> None:
        self.states: list[Any] = []
        self.error: Exception | None = None
        self.scheduler: Any = None
        kind = KINDS[name]
        self.program = Program(kind)
        given = None if options is None else {**kind.options, **options}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if name in TRAINERS:
                    run_trainer(name, self.program, given, STEPS, self.done)
                else:
                    self.run(given)
            except (StowplanError, RuntimeError) as error:
                self.error = error

    def run(self, options: dict[str, Any] | None) -> None:
        program = self.program
        for _ in range(STEPS):
            if options is not None and self.scheduler is None:
                self.scheduler = Scheduler(program.kind.optimizers(program), **options)
            with contextlib.nullcontext() if self.scheduler is None else self.scheduler.step():
                program.kind.step(program)
            self.states.append(program.state())
            program.kind.after(program)
            self.states.append(program.state())
            self.done(self.scheduler)
            program.next_batch()

    def done(self, scheduler: Any) -> None:
        if self.program.kind.step is bool:
            self.states.append(self.program.state())
        if scheduler is not None:
            self.scheduler = scheduler
            scheduler.wait()
        self.program.k += 1


def trained(state: list[Any]) -> list[Any]:
    """Return a state's parameters and optimizers' states: what a step that is refused has not changed."""
    return [one for one in state if isinstance(one, tuple) and not re.search(r"/(avg_\w+|N|u)$", one[0])]


def held(name: str, options: dict[str, Any], plain: Run) -> Run:
    """Run a kind by a scheduler; require Chainer's bits after every step that was over."""
    run, start = Run(name, options), Program(KINDS[name]).state()
    for number, (one, other) in enumerate(zip(plain.states, run.states, strict=False)):
        assert one == other, f"{name} {options}: another state at {number}"
    if run.error is None:
        assert len(run.states) == len(plain.states)
    elif not isinstance(run.error, BudgetError):
        expected = KINDS[name].refused
        assert expected, run.error
        assert re.search(expected, str(run.error)), run.error
    if run.error is not None:
        around = plain.states[max(len(run.states) - 1, 0) : len(run.states) + 1]
        assert trained(run.program.state()) in map(trained, [start, *around])
    return run


def check(name: str) -> str:
    """Try a kind in each way; return the error within the least budget that there is."""
    plain = Run(name, None)
    assert plain.error is None
    for budget in ({}, {"budget": "70%"}):
        held(name, {"pool": NumpyPool(warmup=0, small=1033), **budget}, plain)
    held(name, {}, plain)
    least = held(name, {"budget": 1000}, plain)
    if isinstance(least.error, BudgetError):
        again = held(name, {"budget": 2000}, plain).error
        assert isinstance(again, BudgetError)
        assert again.least == least.error.least  # whenever it is searched for
        least = held(name, {"budget": least.error.least}, plain)
        assert not isinstance(least.error, BudgetError)
    return str(least.error)


def sample() -> list[Any]:
    return [
        pytest.param(name, marks=() if number % SAMPLE == 0 or name in ALWAYS else pytest.mark.slow)
        for number, name in enumerate(KINDS)
    ]


@pytest.mark.parametrize("name", sample())
def test_a_kind_of_program(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state = np.random.get_state()
    try:
        check(name)
    finally:
        np.random.set_state(state)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "by hand: decays_weights",
            "by hand: clips_late",
            "by hand: adds_a_hook_late",
            "by hand: evaluates",
        ),
        *("by hand: updates_twice", "whole: keeps_nodes"),
    ],
)
def test_what_stands_between_the_backward_pass_and_the_update(name: str) -> None:
    assert held(name, {}, Run(name, None)).error is None


@pytest.mark.parametrize("name", ["trainer: logs_norms_late", "inside: the_batch_is_refilled_late"])
def test_what_a_program_begins_to_do_late(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert re.search(KINDS[name].refused, check(name))


@pytest.mark.parametrize("name", ["by call: nothing", "whole: a_code_is_drawn"])
def test_a_step_keeps_to_its_budget_by_another_s_account(name: str) -> None:
    program = Program(KINDS[name])
    scheduler = Scheduler(program.optimizer, budget="65%")
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(STEPS):
            program.next_batch(20_000)
            before = weakref.ref(program.x)
            tracemalloc.reset_peak()
            with scheduler.step():
                program.kind.step(program)
            peak = tracemalloc.get_traced_memory()[1]
            scheduler.wait()
            program.next_batch(1)
            assert before() is None  # nor is anything of a step left to the collector
    finally:
        tracemalloc.stop()
        gc.enable()
    assert scheduler.stats.scheduled > 0
    assert scheduler._budget is not None
    assert peak <= scheduler._budget + (1 << 20)
