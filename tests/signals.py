"""Programs whose signal handler raises at any moment: does each exception reach the program?

``python -m tests.signals POOL TRIALS`` prints where exceptions were lost, as the last two frames that ran. POOL is one
of `PROGRAMS`, in which nothing but a pool could lose one.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from .interrupts import numpy_pool, torch_pool


class AlarmError(ValueError):
    """What the handler raises: one that a function in a trial might, too."""


def cupy_step() -> tuple[Any, Callable[[], object]]:
    """On two streams: blocks die while the other one may still use them."""
    import cupy

    from stowplan import CupyPool

    pool = CupyPool()
    own, other = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)

    def step() -> None:
        with own:
            a = cupy.empty(3000)
            a.fill(1)
            pool.record_stream(a, other)
            del a
            cupy.empty(2000).fill(2)

    return pool, step


def recorded_step() -> tuple[Any, Callable[[], object]]:
    """Without a pool, with call sites, named in the middle of a request: what a test with a mark is."""
    import numpy as np

    from stowplan.prediction.traced_run import Recording

    def step() -> None:
        with Recording() as recording, recording.call():
            np.ones(3000)

    return SimpleNamespace(serving=nullcontext, step=nullcontext), step


def chainer_step() -> tuple[Any, Callable[[], object]]:
    """A training under a budget, from its first step on: recorded, tried, timed, scheduled; it leaves Chainer whole."""
    from stowplan.chainer import Scheduler
    from stowplan.profiler._recorder import current_handler

    from .integrations.chainer.programs import Kind, Program, chainer

    handler, apply = current_handler(), chainer.FunctionNode.apply

    def step() -> None:
        assert current_handler() is handler
        assert chainer.FunctionNode.apply is apply
        # Which Chainer itself leaves, cut off in its own `using_config`.
        chainer.config.enable_backprop = True
        program = Program(Kind(bool))
        scheduler = Scheduler(program.optimizer, budget="80%")
        for _ in range(5):
            with scheduler.step():
                program.optimizer.update(program.loss)

    return SimpleNamespace(serving=nullcontext, step=nullcontext, seconds=0.1), step


PROGRAMS = {
    "numpy": numpy_pool,
    "recorded": recorded_step,
    "chainer": chainer_step,
    "torch": torch_pool,
    "cupy": cupy_step,
}


def lost(name: str, trials: int) -> list[str]:
    """Run a program until its handler has raised so often; return where what it raised was not caught."""
    pool, step = PROGRAMS[name]()
    raised, places, seconds = 0, [], getattr(pool, "seconds", 2e-3)

    def handler(number: int, frame: Any) -> None:
        nonlocal raised, place
        raised += 1
        place = " < ".join(
            f"{at.filename}:{at.lineno} {at.name}" for at in traceback.extract_stack(frame)[:-3:-1]
        )
        raise AlarmError

    signal.signal(signal.SIGALRM, handler)
    random.seed(1)
    with pool.serving():
        for trial in range(trials + 1):
            place = ""
            try:
                if trial:
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, seconds))
                for _ in range(12 if trial == 0 else sys.maxsize):
                    with pool.step():
                        step()
                    if raised == trial > 0:
                        break
            except AlarmError:
                place = ""
            if place:
                places.append(place)
    return places


if __name__ == "__main__":
    print(json.dumps(lost(sys.argv[1], int(sys.argv[2]))))
