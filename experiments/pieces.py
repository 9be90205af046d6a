"""Steps that run piece by piece, in turns: how `experiments.turns` compares steps that take long and agree closely.

A machine that others use is faster or slower for seconds at a time. Two steps of three seconds, one after the other,
differ by some percent for that alone; where the one hands over to the other every `PIECE` seconds, they share what
comes. Each step has a thread, of which only one runs at a time, and stops between two of Chainer's functions.

Only on the host: a GPU is still at work when a function has returned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

import chainer
import numpy as np

PIECE = 0.05
"""Seconds, or longer where one function takes longer: enough that caches warm up again."""


class Runner(chainer.FunctionHook):  # type: ignore[misc]
    """A step in a thread of its own, which runs a piece of it when told to.

    Attributes
    ----------
    seconds : float
        What its pieces took, from the beginning of the step that was begun last.
    """

    name = "pieces"

    def __init__(self, step: Callable[[], object]) -> None:
        self.seconds = 0.0
        self._step = step
        self._began = 0.0
        self._told: SimpleQueue[None] = SimpleQueue()
        self._answers: SimpleQueue[bool | Exception] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def piece(self) -> bool:
        """Run a piece; return whether the step ended with it. What the step raises is raised here."""
        self._told.put(None)
        answer = self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def step(self) -> None:
        """Run what is left of a step; after `__init__` and after another: a whole one."""
        while not self.piece():
            pass

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        """Hand over, before Chainer applies a function, where the piece is long enough."""
        if time.perf_counter() - self._began >= PIECE:
            self._pause(False)

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        """Hand over, before Chainer finds a function's gradients, where the piece is long enough."""
        self.forward_preprocess(function, in_data)

    def _run(self) -> None:
        try:
            with self:
                self._wait()
                while True:
                    self.seconds = 0.0
                    self._step()
                    self._pause(True)
        except Exception as error:  # raised again by who waits for the answer
            self._answers.put(error)

    def _pause(self, ended: bool) -> None:
        self.seconds += time.perf_counter() - self._began
        self._answers.put(ended)
        self._wait()

    def _wait(self) -> None:
        self._told.get()
        self._began = time.perf_counter()


def alternate(runners: Mapping[str, Runner], rng: np.random.Generator, repeat: int) -> dict[str, float]:
    """Run some steps of each, in an order that is drawn anew for each piece; return the seconds of a step of each."""
    seconds = dict.fromkeys(runners, 0.0)
    for _ in range(repeat):
        unfinished = list(runners)
        while unfinished:
            for name in map(str, rng.permutation(unfinished)):
                if runners[name].piece():
                    unfinished.remove(name)
                    seconds[name] += runners[name].seconds / repeat
    return seconds
