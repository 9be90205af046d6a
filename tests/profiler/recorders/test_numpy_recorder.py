"""NumpyRecorder on real arrays: the same profile as the pool's own recording."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan import NumpyPool, NumpyRecorder
from stowplan.errors import PoolError, ProfileError

from ...children import end_quietly
from ...running import run


class Program:
    """A step with a temporary, a wrapped block and a block that stays."""

    def __init__(self) -> None:
        self.gradient: np.ndarray | None = None

    def step(self) -> None:
        activation = np.ones(1000) * 2
        self.gradient = None
        self.gradient = np.concatenate([activation, activation])


def test_recorder_and_pool_see_the_same_profile() -> None:
    recorder, program = NumpyRecorder(), Program()
    with recorder:
        for _ in range(4):
            with recorder.step():
                program.step()
    pool, program = NumpyPool(small=0), Program()
    with pool:
        run(pool, 4, program.step)
    recorded, pooled = recorder.profile(), pool.profile()
    assert recorded.same_blocks(pooled)
    assert recorded.wrapped.sum() == 1


def test_a_failed_step_breaks_the_pair() -> None:
    recorder, program = NumpyRecorder(), Program()

    def failing_step() -> None:
        with recorder.step():
            program.step()
            raise KeyError

    with recorder:
        with recorder.step():
            program.step()
        with pytest.raises(KeyError):
            failing_step()
        with recorder.step():
            program.step()
    with pytest.raises(ProfileError, match="no profile yet"):
        recorder.profile()
    with recorder, recorder.step():
        program.step()
    assert recorder.profile().wrapped.sum() == 1


def test_misuse_is_refused() -> None:
    recorder = NumpyRecorder()
    with recorder:
        with pytest.raises(PoolError, match="entered already"):
            recorder.__enter__()
        with recorder.step(), pytest.raises(PoolError, match="running already"), recorder.step():
            pass


def test_arrays_outlive_the_recorder() -> None:
    with NumpyRecorder() as recorder, recorder.step():
        kept = np.arange(1000)
        kept.resize(2000, refcheck=False)
        zeros = np.zeros(5000)
    del recorder
    assert (kept[:1000] == np.arange(1000)).all()
    assert not zeros.any()


def test_a_step_that_comes_again_after_others_is_found() -> None:
    """Images of different sizes, in turn: no step repeats the one before."""

    def measure(side: int) -> float:
        image = np.ones((side, side))
        edges = np.abs(image - 0.5)
        edges *= 2
        return sum(float((edges[:5, : 10 + k] * 2).sum()) for k in range(6))

    recorder = NumpyRecorder(auto_step=True, small=300, sites=True)
    with recorder:
        for side in (30, 90, 50, 70) * 12:
            measure(side)
    profile = recorder.profile()
    sides = [90 * 90 * 8] * 3  # image, difference, edges
    assert sorted(profile.size.tolist(), reverse=True)[:4] == [*sides, 5 * 15 * 8]
    assert len(profile) == 3 + 6
    assert len(profile.sites) == 3
    assert not profile.escaped.any()


def test_what_comes_now_and_then_is_not_the_step() -> None:
    """A step that reports, every sixth time, asks for more."""
    recorder = NumpyRecorder(auto_step=True, small=300, sites=True)
    state = np.ones((50, 50))
    with recorder:
        for number in range(60):
            change = np.roll(state, 1) - state
            state = state + 0.5 * change
            del change
            if number % 6 == 5:
                np.sort(state.ravel()), np.abs(state)
    assert set(recorder.profile().size.tolist()) == {50 * 50 * 8}
    program = recorder.profile().program
    assert program is not None
    assert len(recorder.profile()) == 4 * program.turns == 8  # the state overlaps its successor: two in turn


def test_a_recorder_does_not_count_its_own_arrays() -> None:
    recorder = NumpyRecorder()
    with recorder:
        for _ in range(3):
            with recorder.step():
                for _ in range(1000):
                    np.empty(10)
            kept = recorder.whole()
    assert int(kept.alive.max()) == 80
    assert recorder.program().live_peak == 80


OUTLIVED = """
import threading
import numpy as np
from stowplan import NumpyRecorder

asking = threading.Event()

def ask():
    for n in range(2000):
        np.ones(n).sum()
        asking.set()

for _ in range(5):
    recorder = NumpyRecorder(sites=True, threads=True)
    with recorder:
        thread = threading.Thread(target=ask)
        thread.start()
        asking.wait()
    del recorder
    thread.join()
    asking.clear()
"""


def test_threads_may_outlive_a_recorder_with_call_sites() -> None:
    end_quietly(OUTLIVED)
