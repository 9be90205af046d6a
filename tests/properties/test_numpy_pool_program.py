"""Arbitrary programs through NumpyPool: no live range overlaps another, and every byte written is read back."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stowplan import NumpyPool

SIZES = st.sampled_from([0, 1, 7, 64, 65, 200, 1000, 1024, 5000, 40_000])


@dataclass(frozen=True)
class Planned:
    """One request of the repeated step: bytes, and before how many requests from its own it is freed."""

    size: int
    life: int


class FailureError(Exception):
    """What a program raises within a step."""


class NumpyPoolProgram(RuleBasedStateMachine):
    """A step that repeats, and everything that a program may do instead."""

    @initialize(script=st.lists(st.builds(Planned, SIZES, st.integers(1, 12)), min_size=1, max_size=10))
    def start(self, script: list[Planned]) -> None:
        self.pool = NumpyPool(warmup=0)
        self.script = script
        self.live: dict[int, tuple[np.ndarray, int]] = {}  # key -> (array, the byte that it is filled with)
        self.freed_at: dict[int, int] = {}  # key -> request count before which the program frees it
        self.count = 0
        self.key = 0
        self.step = None

    # ------------------------------------------------------------------------------------------- what programs do

    def allocate(self, size: int, *, zeroed: bool = False) -> int:
        with self.pool:
            array = np.zeros(size, np.uint8) if zeroed else np.empty(size, np.uint8)
        if zeroed:
            assert not array.any()
        self.key += 1
        array.fill(self.key % 251)
        self.live[self.key] = (array, self.key % 251)
        return self.key

    def free(self, key: int) -> None:
        array, pattern = self.live.pop(key)
        assert (array == pattern).all()
        self.freed_at.pop(key, None)

    def run_request(self, planned: Planned, late: int = 0) -> None:
        for key in [key for key, at in self.freed_at.items() if at <= self.count]:
            self.free(key)
        key = self.allocate(planned.size)
        self.freed_at[key] = self.count + min(planned.life, len(self.script)) + late
        self.count += 1

    def begin(self) -> None:
        self.step = self.pool.step()
        self.step.__enter__()
        self.position = 0

    def end(self, error: type[BaseException] | None = None) -> None:
        self.step.__exit__(error, None, None)
        self.step = None

    # ------------------------------------------------------------------------------------------------------ rules

    @precondition(lambda self: self.step is None)
    @rule(times=st.integers(1, 4))
    def hot_steps(self, times: int) -> None:
        for _ in range(times):
            self.begin()
            for planned in self.script:
                self.run_request(planned)
            self.end()

    @precondition(lambda self: self.step is None)
    @rule()
    def begin_step(self) -> None:
        self.begin()

    @precondition(lambda self: self.step is not None and self.position < len(self.script))
    @rule(
        missing=st.integers(0, 2),
        late=st.sampled_from([0, 0, 0, 3, 50]),
        change=st.sampled_from([0, 0, 0, -60, 500]),
    )
    def planned_request(self, missing: int, late: int, change: int) -> None:
        self.position = min(self.position + missing, len(self.script) - 1)
        planned = self.script[self.position]
        self.run_request(Planned(max(planned.size + change, 0), planned.life), late)
        self.position += 1

    @rule(size=SIZES, zeroed=st.booleans())
    def any_request(self, size: int, zeroed: bool) -> None:
        self.allocate(size, zeroed=zeroed)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def any_free(self, data: st.DataObject) -> None:
        self.free(data.draw(st.sampled_from(sorted(self.live))))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), size=SIZES)
    def resize(self, data: st.DataObject, size: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.live)))
        array, pattern = self.live[key]
        kept = min(len(array), size)
        with self.pool:
            array.resize(size, refcheck=False)
        assert (array[:kept] == pattern).all()
        array.fill(pattern)

    @precondition(lambda self: self.step is not None)
    @rule()
    def end_step(self) -> None:
        self.end()

    @precondition(lambda self: self.step is not None)
    @rule()
    def step_fails(self) -> None:
        self.end(FailureError)

    @precondition(lambda self: self.step is None)
    @rule(script=st.lists(st.builds(Planned, SIZES, st.integers(1, 12)), min_size=1, max_size=10))
    def program_changes(self, script: list[Planned]) -> None:
        self.script = script

    @precondition(lambda self: self.step is None)
    @rule()
    def pool_is_dropped(self) -> None:
        self.pool = NumpyPool(warmup=0)  # its blocks live on

    # -------------------------------------------------------------------------------------------------- promises

    @invariant()
    def live_ranges_are_disjoint(self) -> None:
        ranges = sorted(
            (array.__array_interface__["data"][0], max(array.nbytes, 1))
            for array, _ in getattr(self, "live", {}).values()
        )
        for (begin, size), (following, _) in pairwise(ranges):
            assert begin + size <= following

    @invariant()
    def bytes_are_as_written(self) -> None:
        for array, pattern in getattr(self, "live", {}).values():
            assert (array == pattern).all()

    @invariant()
    def counts_are_conserved(self) -> None:
        if hasattr(self, "pool"):
            stats = self.pool.stats
            assert stats.upstream + stats.guests == sum(stats.reasons.values())
            assert stats.live_bytes <= stats.peak_live_bytes
            assert stats.peak_reserved_bytes >= stats.arena_bytes

    def teardown(self) -> None:
        if getattr(self, "step", None) is not None:
            self.end(FailureError)
        for key in list(getattr(self, "live", {})):
            self.free(key)


TestNumpyPoolProgram = NumpyPoolProgram.TestCase
TestNumpyPoolProgram.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
