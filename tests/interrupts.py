"""Programs that Ctrl-C stops at any moment, and that go on, as a cell of a notebook is run again.

``python -m tests.interrupts NAME TRIALS`` runs a program so often, each time in a new pool, and prints how often it
came to what: ``replays`` or ``serves``, or what was wrong. It is a process of its own, for it takes Python's tracer,
and its signals.
"""

from __future__ import annotations

import _thread
import json
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from stowplan.allocator._core import set_aside

from .updates import update

STEPS = 6
"""Steps of a program: a plan serves the last ones."""


class _Raise:
    """``RAISE[SIGINT]`` is Ctrl-C, of which the traced code hears: the tracer calls nothing, after which it would."""

    __getitem__ = staticmethod(_thread.interrupt_main)


RAISE: Any = _Raise()


def trace(program: Callable[[], object], moment: float) -> int:
    """Run a program, interrupted before the `moment`th instruction that it runs; return how many they were."""
    passed = 0

    def traced(frame: Any, event: str, _: object) -> Any:
        nonlocal passed
        frame.f_trace_opcodes = True
        if event == "opcode":
            passed += 1
            if passed == moment:
                sys.settrace(None)
                RAISE[signal.SIGINT]
        return traced

    try:
        sys.settrace(traced)
        try:
            program()
        finally:
            sys.settrace(None)
        for _ in range(2):  # Python looks for signals here at the latest
            pass
    except KeyboardInterrupt:
        pass
    return passed


def work_of(ones: Callable[[int], Any]) -> Callable[[], object]:
    def work() -> None:
        a = ones(9000)
        b = a * 2
        del a
        b + b

    return work


def numpy_pool(**options: Any) -> tuple[Any, Callable[[], object]]:
    import numpy as np

    from stowplan import NumpyPool

    return NumpyPool(**options), work_of(np.ones)


def cupy_pool() -> tuple[Any, Callable[[], object]]:
    from stowplan import CupyPool

    from .allocator.cupy_host import HostUpstream, cupy

    def work() -> None:
        a = cupy.empty(3000)
        b = cupy.empty(5000)
        del a
        cupy.empty(2000)
        del b

    return CupyPool(HostUpstream(), device=0), work


def torch_pool() -> tuple[Any, Callable[[], object]]:
    import torch

    from stowplan import TorchPool

    return TorchPool(), work_of(torch.ones)


POOLS: dict[str, Callable[[], tuple[Any, Callable[[], object]]]] = {
    "numpy": numpy_pool,
    "numpy-told": lambda: numpy_pool(auto_step=True),
    "cupy": cupy_pool,
    "torch": torch_pool,
}


def step_outcome(name: str, moment: float) -> tuple[str, int]:
    """Interrupt a program; return what becomes of it, and how many instructions it has run."""
    pool, work = POOLS[name]()
    told = name.endswith("told")

    def steps(count: int) -> None:
        for _ in range(count):
            if told:
                work()
                update()
            else:
                with pool.step():
                    work()
                with pool.interrupt():
                    pass
            pool.wait(600)

    with pool.serving():
        passed = trace(lambda: steps(STEPS), moment)
        try:
            if set_aside(False):
                return "the thread is not seen", passed
            if not told and pool.report(as_dict=True)["step"]["running"]:
                return "a step is open", passed
            steps(2 * STEPS)
            before = pool.stats
            steps(1)
            after = pool.stats
        except Exception as error:
            return f"{type(error).__name__}: {error}", passed
    replayed, requests = after.replayed - before.replayed, after.requests - before.requests
    return ("replays" if replayed == requests > 0 else f"replays {replayed} of {requests}"), passed


def entered_outcome(name: str, moment: float) -> tuple[str, int]:
    """Interrupt a program that enters a pool, and installs it; return what becomes of it."""
    pool, work = POOLS[name.removesuffix("-entered")]()

    def serves() -> bool:
        before = pool.stats.requests
        work()
        return bool(pool.stats.requests > before)

    installs = False

    def program() -> None:
        nonlocal installs
        for _ in range(2):
            with pool:
                work()
            installs = True
            pool.install()
            work()
            pool.uninstall()
            installs = False

    passed = trace(program, moment)
    if installs and pool._host.installed:
        pool.uninstall()
    if serves():
        return "serves where it was left", passed
    for _ in range(2):
        try:
            with pool:
                if not serves():
                    return "does not serve", passed
            pool.install()
            pool.uninstall()
        except Exception as error:
            return f"{type(error).__name__}: {error}", passed
    return ("serves where it was left" if serves() else "serves"), passed


def main(name: str, trials: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    outcome = entered_outcome if name.endswith("-entered") else step_outcome
    outcome(name, 0)  # imports
    passed = outcome(name, 0)[1]
    chance = random.Random(0)
    came_to = Counter(outcome(name, chance.randint(1, passed))[0] for _ in range(trials))
    print(json.dumps(came_to))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
