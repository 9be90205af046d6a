"""What outlives the steps of a training: parameters, persistent arrays of links, and the state of update rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..compat import enable_chainer

enable_chainer()

import chainer  # noqa: E402 (mended first)

__all__ = ["parameters_of", "resident_arrays", "retained_bytes"]


def parameters_of(optimizers: Iterable[Any]) -> Iterator[Any]:
    """Yield the parameters that these `chainer.Optimizer` update."""
    for optimizer in optimizers:
        yield from optimizer.target.params()


def resident_arrays(optimizers: Iterable[Any]) -> list[Any]:
    """Return the arrays that are there between two steps, as far as they have been made."""
    found = []
    for optimizer in optimizers:
        for link in optimizer.target.links():
            for name in sorted(link._params | link._persistent):
                value = link.__dict__[name]
                array = value.array if isinstance(value, chainer.Variable) else value
                if isinstance(array, chainer.get_array_types()):
                    found.append(array)
        for param in optimizer.target.params():
            state = getattr(param.update_rule, "state", None) or {}
            found += [array for array in state.values() if isinstance(array, chainer.get_array_types())]
    return found


def retained_bytes(optimizers: Iterable[Any]) -> int:
    """Return the bytes of these arrays, each counted once."""
    return sum({id(array): int(array.nbytes) for array in resident_arrays(optimizers)}.values())
