"""A training run in steps: a network, momentum SGD, synthetic images; the time and page faults of each step."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Task:
    """A training run's parameters. The same task gives the same run, bit by bit.

    Attributes
    ----------
    model
        One of `stowplan.insight.demo.MODELS`.
    batch
        Images in a step.
    steps
        Steps in a run.
    seed
        The seed of the images, the labels, the initial parameters and dropout.
    """

    model: str
    batch: int
    steps: int
    seed: int


@dataclass(frozen=True)
class Step:
    """One step: its loss, its wall-clock time in seconds, and the process's minor page faults meanwhile."""

    loss: float
    seconds: float
    minor_faults: int


@dataclass(frozen=True)
class Run:
    """The steps of a run, and copies of everything that it trained: parameters, statistics, optimizer state."""

    steps: tuple[Step, ...]
    state: dict[str, np.ndarray[Any, Any]]


class Training:
    """A training run from scratch that is taken step by step, so that several runs can take turns.

    Parameters
    ----------
    task
        What is trained.
    steps
        Called once, with the optimizer. Returns a function that makes the context of each step; entering and leaving it
        counts in the step's time.

    Notes
    -----
    A step is what Chainer's ``StandardUpdater`` does: make the batch, then ``optimizer.update``, which runs forward,
    clears the gradients of the step before, runs backward, *drops the loss* and updates. A loop that keeps its loss
    across steps keeps the whole graph of a step alive while the next one builds its own.
    """

    def __init__(
        self,
        task: Task,
        steps: Callable[[Any], Callable[[], AbstractContextManager[Any]]] = lambda optimizer: nullcontext,
    ) -> None:
        import chainer

        from .models import CLASSES, NETWORKS

        self._batch = task.batch
        self._draws = np.random.RandomState(task.seed).get_state()
        with self._drawing():
            self._network = NETWORKS[task.model]()
        self._optimizer = chainer.optimizers.MomentumSGD(lr=0.001, momentum=0.9).setup(self._network)
        data, side = np.random.default_rng(task.seed), self._network.insize
        self._images = data.standard_normal((2 * task.batch, 3, side, side), dtype=np.float32)
        self._labels = data.integers(0, CLASSES, 2 * task.batch, dtype=np.int32)
        self._context = steps(self._optimizer)
        self._done: list[Step] = []

    def step(self) -> None:
        """Run the next step."""
        losses: list[float] = []

        def loss_of(x: Any, t: Any) -> Any:
            loss = self._network(x, t)
            losses.append(float(loss.array))
            return loss

        number = len(self._done)
        rows = np.arange(number * self._batch, (number + 1) * self._batch) % len(self._images)
        with self._drawing():
            faults, began = _minor_faults(), time.perf_counter()
            with self._context():
                self._optimizer.update(loss_of, self._images[rows], self._labels[rows])
            seconds = time.perf_counter() - began
            self._done.append(Step(losses[-1], seconds, _minor_faults() - faults))

    def run(self) -> Run:
        """Return the steps so far, and a copy of the state."""
        return Run(
            tuple(self._done), {**_state("network", self._network), **_state("optimizer", self._optimizer)}
        )

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Give NumPy's global generator, from which Chainer draws, this run's state meanwhile."""
        before = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self._draws)  # noqa: NPY002
        try:
            yield
        finally:
            self._draws = np.random.get_state()  # noqa: NPY002
            np.random.set_state(before)  # noqa: NPY002


def difference(one: Run, other: Run) -> str | None:
    """Return the first thing in which two runs of one task differ, or None if all bits agree."""
    for number, (a, b) in enumerate(zip(one.steps, other.steps, strict=True)):
        if np.float64(a.loss).tobytes() != np.float64(b.loss).tobytes():
            return f"the loss of step {number}: {a.loss!r} and {b.loss!r}"
    for name in sorted(one.state.keys() | other.state.keys()):
        if name not in one.state or name not in other.state:
            return f"{name} exists in one run only"
        x, y = one.state[name], other.state[name]
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"{name}: {x.dtype}{x.shape} and {y.dtype}{y.shape}"
        # As bytes: two NaNs of the same bits are the same, 0.0 and -0.0 are not.
        if x.tobytes() != y.tobytes():
            return f"the values of {name}"
    return None


def _minor_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _state(prefix: str, target: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Copy all that Chainer would save of a network or an optimizer."""
    from chainer.serializers import DictionarySerializer

    serializer = DictionarySerializer()
    serializer.save(target)
    return {f"{prefix}/{name}": np.array(value) for name, value in serializer.target.items()}
