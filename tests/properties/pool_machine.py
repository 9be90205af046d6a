"""Hypothesis drives a `PoolProgram`: it chooses what the program does, on which thread and in which context."""

from __future__ import annotations

import gc
from collections.abc import Hashable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from .pool_program import KEYS, PLACES, SIZES, FailureError, Place, Planned, PoolProgram

scripts = st.lists(st.builds(Planned, st.sampled_from(SIZES), st.integers(1, 12)), min_size=1, max_size=10)


class PoolMachine(RuleBasedStateMachine):
    """Hypothesis chooses what the program does. A subclass says on which pool.

    A program must do the same when it is run again. So plans are always ready when a step begins, and garbage is
    collected by rule only; what happens when it is not so is for soak.py to see.
    """

    backend: ClassVar[type[Any]]

    @initialize(script=scripts)
    def start(self, script: list[Planned]) -> None:
        gc.disable()
        gc.freeze()  # else every collection walks through all that pytest and hypothesis hold
        self.program = PoolProgram(self.backend())
        self.program.scripts = dict.fromkeys(KEYS, script)

    def in_step(self) -> bool:
        return self.program.step is not None

    def between_steps(self) -> bool:
        return self.program.step is None

    def worker_in_step(self) -> bool:
        return self.program.worker_step is not None

    def worker_between_steps(self) -> bool:
        return self.program.worker_step is None

    def all_between_steps(self) -> bool:
        return self.between_steps() and self.worker_between_steps()

    @precondition(between_steps)
    @rule(times=st.integers(1, 4), key=st.sampled_from(KEYS))
    def hot_steps(self, times: int, key: Hashable) -> None:
        for _ in range(times):
            self.program.wait()
            self.program.hot_step(key)

    @precondition(between_steps)
    @rule(key=st.sampled_from(KEYS))
    def begin_step(self, key: Hashable) -> None:
        self.program.wait()
        self.program.begin(key)

    @precondition(
        lambda self: self.in_step() and self.program.position < len(self.program.scripts[self.program.key])
    )
    @rule(
        missing=st.integers(0, 2),
        late=st.sampled_from([0, 0, 0, 3, 50]),
        change=st.sampled_from([0, 0, 0, -60, 500]),
    )
    def planned_request(self, missing: int, late: int, change: int) -> None:
        self.program.planned_request(missing, late, change)

    @rule(size=st.sampled_from(SIZES), zeroed=st.booleans(), place=st.sampled_from(PLACES))
    def any_request(self, size: int, zeroed: bool, place: Place) -> None:
        self.program.allocate(size, zeroed=zeroed, place=place)

    @precondition(worker_between_steps)
    @rule(times=st.integers(1, 4), key=st.sampled_from(KEYS))
    def worker_hot_steps(self, times: int, key: Hashable) -> None:
        for _ in range(times):
            self.program.wait()
            self.program.worker_hot_step(key)

    @precondition(worker_between_steps)
    @rule(key=st.sampled_from(KEYS))
    def worker_begins(self, key: Hashable) -> None:
        self.program.wait()
        self.program.worker_begins(key)

    @precondition(worker_in_step)
    @rule(fails=st.booleans())
    def worker_ends(self, fails: bool) -> None:
        self.program.worker_ends(FailureError if fails else None)

    @precondition(lambda self: self.program.droppable())
    @rule(data=st.data(), elsewhere=st.sampled_from([False, False, False, True]))
    def any_free(self, data: st.DataObject, elsewhere: bool) -> None:
        self.program.free(data.draw(st.sampled_from(self.program.droppable())), elsewhere=elsewhere)

    @precondition(lambda self: self.program.backend.resizes and self.program.droppable())
    @rule(data=st.data(), size=st.sampled_from(SIZES))
    def resize(self, data: st.DataObject, size: int) -> None:
        self.program.resize(data.draw(st.sampled_from(self.program.droppable())), size)

    @precondition(lambda self: self.program.droppable())
    @rule(data=st.data())
    def leave_in_a_cycle(self, data: st.DataObject) -> None:
        self.program.leave_in_a_cycle(data.draw(st.sampled_from(self.program.droppable())))

    @rule()
    def collect_garbage(self) -> None:
        gc.collect()

    @precondition(in_step)
    @rule()
    def end_step(self) -> None:
        self.program.end()

    @precondition(in_step)
    @rule()
    def step_fails(self) -> None:
        self.program.end(FailureError)

    @rule()
    def interrupt(self) -> None:
        self.program.interrupt()

    @rule()
    def resume(self) -> None:
        self.program.resume()

    @rule()
    def wait_for_plans(self) -> None:
        self.program.wait()

    @rule(times=st.integers(0, 4))
    def upstream_fails(self, times: int) -> None:
        self.program.backend.fail(times)

    @precondition(between_steps)
    @rule(script=scripts, key=st.sampled_from(KEYS))
    def a_step_changes(self, script: list[Planned], key: Hashable) -> None:
        self.program.scripts[key] = script

    @precondition(lambda self: self.program.backend.installs)
    @rule()
    def install_or_uninstall(self) -> None:
        self.program.install_or_uninstall()

    @precondition(all_between_steps)
    @rule()
    def pool_is_dropped(self) -> None:
        self.program.replace_pool(self.backend())

    @precondition(all_between_steps)
    @rule()
    def plans_are_saved_and_loaded(self) -> None:
        self.program.wait()
        self.program.reload(self.backend)

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "program"):
            self.program.check()

    def teardown(self) -> None:
        if hasattr(self, "program"):
            self.program.finish()
        gc.unfreeze()
        gc.enable()
