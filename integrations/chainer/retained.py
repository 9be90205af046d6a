"""What outlives the steps of a training: parameters, persistent arrays of links, and the state of update rules."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import chainer
import numpy as np

from .parameter_swap import AwayState, is_away, swapped


def parameters_of(optimizers: Iterable[Any]) -> Iterator[Any]:
    """Yield the parameters that these `chainer.Optimizer` update."""
    for optimizer in optimizers:
        yield from optimizer.target.params()


def resident_arrays(optimizers: Iterable[Any]) -> list[Any]:
    """Return the arrays that exist between two steps, as far as they have been made, and are in memory."""
    found = []
    for optimizer in optimizers:
        for link in optimizer.target.links():
            for name in sorted(link._params | link._persistent):
                value = link.__dict__[name]
                if isinstance(value, chainer.Parameter) and is_away(value):
                    continue
                array = value.array if isinstance(value, chainer.Variable) else value
                if isinstance(array, chainer.get_array_types()):
                    found.append(array)
        for param in optimizer.target.params():
            # While a link runs, a hook of its may have put a variable in a parameter's place.
            state = getattr(getattr(param, "update_rule", None), "state", None)
            state = {} if state is None or type(state) is AwayState else state
            found += [array for array in state.values() if isinstance(array, chainer.get_array_types())]
    return found


def retained_bytes(optimizers: Iterable[Any]) -> int:
    """Return the bytes of these arrays, each counted once."""
    return sum({id(array): int(array.nbytes) for array in resident_arrays(optimizers)}.values())


class Retained:
    """What outlives the steps of some optimizers, the gradients included that one step adds to another's."""

    def __init__(self, optimizers: Iterable[Any]) -> None:
        self._optimizers = list(optimizers)
        self._gradients = 0
        self._lacks_state = False  # the first step had no update, which makes the state

    def bytes(self) -> int:
        """Return its bytes now."""
        return retained_bytes(self._optimizers) + self._gradients

    def left_of(self, budget: int) -> int:
        """Return the bytes of a budget that are left, once all state has been made."""
        return max(0, budget - self.bytes() - state_to_come(self._optimizers))

    def grows(self, updates: int, found: Mapping[int, int], *, is_first: bool) -> bool:
        """Note a step: its updates, and the bytes of the gradients that its first backward pass found, by id.

        Return whether more outlives steps than was known.
        """
        gradients = sum(found.get(id(param), 0) for param in parameters_of(self._optimizers)) if found else 0
        grows = (self._lacks_state and updates > 0) or gradients > self._gradients
        self._lacks_state = updates == 0 and (is_first or self._lacks_state)
        self._gradients = max(self._gradients, gradients)
        return grows


def state_to_come(optimizers: Iterable[Any]) -> int:
    """Return the bytes of the state that Chainer's update rules have yet to make, for the parameters that there are."""
    total = 0
    arrays: dict[type, int] = {}
    for param in parameters_of(optimizers):
        rule = getattr(param, "update_rule", None)
        if (
            swapped(param)
            or param.array is None
            or rule is None
            or rule.state
            or not type(rule).__module__.startswith("chainer.")
        ):
            continue
        if type(rule) not in arrays:
            twin = copy.copy(rule)
            twin._state = {}
            twin.init_state(chainer.Parameter(np.zeros(1, np.float32)))
            arrays[type(rule)] = sum(isinstance(value, np.ndarray) for value in twin.state.values())
        total += int(param.array.nbytes) * arrays[type(rule)]
    return total
