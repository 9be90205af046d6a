"""The program's live peak, split into older, escaped and planned, by hand."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

from stowplan import NumpyRecorder

from ...running import in_threads

SMALL = 1033


def test_coverage_and_repeats() -> None:
    recorder = NumpyRecorder(small=SMALL)
    with recorder:
        np.ones(50_000)
        for number in range(10):
            with recorder.step():
                np.ones(1_000 if number != 2 else 7_000)
                np.ones(2_000)
    program = recorder.profile().program
    assert program is not None
    assert (program.library, program.small) == ("NumPy", SMALL)
    assert (program.requests, program.bytes) == (21, 8 * (50_000 + 9 * 3_000 + 9_000))
    assert (program.steps, program.repeats, program.step_requests) == (10, 9, 20)
    assert program.coverage == (20 / 21, 36_000 / 86_000)


@pytest.mark.parametrize("auto_step", [False, True])
def test_what_could_not_be_had_is_no_block(auto_step: bool) -> None:
    rounds = 12
    recorder = NumpyRecorder(small=SMALL, auto_step=auto_step, sites=auto_step)
    with recorder:
        for _ in range(rounds):
            with nullcontext() if auto_step else recorder.step():
                held = np.ones(2_000)
                with pytest.raises(MemoryError):
                    np.empty(1 << 59, dtype=np.uint8)
                other = np.ones(3_000)
                del held, other
    profile = recorder.profile()
    program = profile.program
    assert (profile.size.tolist(), profile.live_peak) == ([16_000, 24_000], 40_000)
    assert program is not None
    assert (program.live_peak, program.requests, program.bytes) == (40_000, 2 * rounds, rounds * 40_000)
    assert program.step_requests == 2 * program.steps


def test_what_other_threads_have_alive_counts() -> None:
    """A thread in a copy of the context has the recorder as its handler, too."""
    import contextvars

    kept: list[np.ndarray] = []
    recorder = NumpyRecorder(small=SMALL)
    with recorder:
        for _ in range(3):
            with recorder.step():
                np.ones(1_000)
                context = contextvars.copy_context()
                in_threads(partial(context.run, lambda: kept.append(np.ones(3_000))))
    profile = recorder.profile()
    assert profile.size.tolist() == [8_000]
    assert profile.live_peak == 3 * 24_000
    program = profile.program
    assert program is not None
    assert (program.other_requests, program.other_bytes) == (3, 3 * 24_000)


def test_threads_and_other_profilers_are_seen_from_entry_to_exit() -> None:
    called = []

    def profiler(frame: object, event: str, argument: object) -> None:
        called.append(event)

    def count(recorder: NumpyRecorder) -> int:
        in_threads(lambda: np.ones(3_000))
        return recorder.program().other_requests

    recorder = NumpyRecorder(small=SMALL, threads=True)
    threading.setprofile(profiler)
    try:
        with recorder, recorder.step():
            assert count(recorder) == 1
            assert called
        assert threading.getprofile() is profiler
        assert count(recorder) == 1
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    unaware = NumpyRecorder(small=SMALL)
    with unaware, unaware.step():
        assert count(unaware) == 0
