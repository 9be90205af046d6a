"""Run steps slice by slice, in turns: how long and closely matched steps are compared on a machine that others use.

Such a machine is faster or slower for seconds at a time. Two steps of three seconds, run one after the other, differ
by some percent for that alone. Here each step runs for `SLICE` seconds, then the next one does, so all of them meet
the same conditions::

    step A   ====    ====    ====
    step B       ====    ====    ====      -> time

Each step has a thread, of which one runs at a time, and stops only between two of Chainer's functions. This works on
the host only: a GPU is still at work when a function has returned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

import chainer
import numpy as np

SLICE = 0.05
"""Seconds that a slice takes at least: enough that caches warm up again. It ends with the function that is running."""


class InterleavedStep(chainer.FunctionHook):  # type: ignore[misc]
    """A step in a thread of its own, which runs one slice of it whenever it is told to.

    Attributes
    ----------
    seconds : float
        What the slices of the last step begun took together.
    """

    name = "interleave"

    def __init__(self, step: Callable[[], object]) -> None:
        self.seconds = 0.0
        self._step = step
        self._began = 0.0
        self._orders: SimpleQueue[None] = SimpleQueue()
        self._answers: SimpleQueue[bool | Exception] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def run_slice(self) -> bool:
        """Run a slice; return whether the step ended with it. What the step raises is raised here."""
        self._orders.put(None)
        answer = self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run_step(self) -> None:
        """Run to the end of the step: a whole one, if none has begun."""
        while not self.run_slice():
            pass

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        """End the slice before Chainer applies a function, if it has lasted long enough."""
        if time.perf_counter() - self._began >= SLICE:
            self._pause(False)

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        """End the slice before Chainer computes a function's gradients, if it has lasted long enough."""
        self.forward_preprocess(function, in_data)

    def _run(self) -> None:
        try:
            with self:
                self._wait()
                while True:
                    self.seconds = 0.0
                    self._step()
                    self._pause(True)
        except Exception as error:  # run_slice raises it again
            self._answers.put(error)

    def _pause(self, ended: bool) -> None:
        self.seconds += time.perf_counter() - self._began
        self._answers.put(ended)
        self._wait()

    def _wait(self) -> None:
        self._orders.get()
        self._began = time.perf_counter()


def alternate(
    steps: Mapping[str, InterleavedStep], rng: np.random.Generator, repeat: int
) -> dict[str, float]:
    """Run `repeat` steps of each, drawing the order of each round of slices; return the seconds of a step of each."""
    seconds = dict.fromkeys(steps, 0.0)
    for _ in range(repeat):
        unfinished = list(steps)
        while unfinished:
            for name in map(str, rng.permutation(unfinished)):
                if steps[name].run_slice():
                    unfinished.remove(name)
                    seconds[name] += steps[name].seconds / repeat
    return seconds
