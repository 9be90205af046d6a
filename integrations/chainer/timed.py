"""Time the operators of a running step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .execution import ScheduledStep


@dataclass
class Seconds:
    """Seconds of a step's operators: ``forward`` and ``backward`` by number, ``update`` by parameter."""

    forward: list[float] = field(default_factory=list)
    backward: dict[int, float] = field(default_factory=dict)
    update: dict[int, float] = field(default_factory=dict)

    def least(self, other: Seconds) -> Seconds:
        """Return the smaller seconds of two steps of one structure: a noisy machine only adds."""
        return Seconds(
            [min(a, b) for a, b in zip(self.forward, other.forward, strict=True)],
            {k: min(s, other.backward.get(k, s)) for k, s in self.backward.items()},
            {k: min(s, other.update.get(k, s)) for k, s in self.update.items()},
        )


class TimedStep(ScheduledStep):
    """A step that times each operator; what is brought back before it counts apart.

    Parameters
    ----------
    clock
        Returns seconds; on a device it waits for the kernels running there (`meter.clock_for`).
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter, **options: Any) -> None:
        super().__init__(**options)
        self.seconds = Seconds()
        self._clock = clock
        self._brought_back = 0.0  # seconds

    def apply(self, function: Any, inputs: Any) -> Any:
        """Apply a function, and time it."""
        began = self._clock()
        outputs = super().apply(function, inputs)
        if function.inputs is not None:
            self.seconds.forward.append(self._clock() - began)
        return outputs

    def backward_step(self, function: Any, grads: Any) -> list[Any]:
        """Run one function's backward step, and time it."""
        began = self._clock()
        touched = super().backward_step(function, grads)
        self.seconds.backward[function._stowplan.number] = self._clock() - began - self._brought_back
        return touched

    def _bring_back(self, function: Any) -> None:
        began = self._clock()
        super()._bring_back(function)
        self._brought_back = self._clock() - began

    def finish_leaf(self, node: Any, grads: Any, loss_scale: Any) -> None:
        """Finish a leaf, and time its update."""
        began = self._clock()
        super().finish_leaf(node, grads, loss_scale)
        self.seconds.update[id(node)] = self._clock() - began
