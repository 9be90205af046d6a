"""Find out if the program reads gradients after the backward pass, from the first step until the second one begins.

A program that clips, logs or averages gradients itself reads `Parameter.grad` or `grad_var`, so they have to be there,
as Chainer leaves them. While a watch is on, these attributes of `chainer.Parameter` record each read that is not
Chainer's own in a backward pass or an update.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import chainer

from ..errors import ScheduleError

__all__ = ["GradientReads"]

WATCHED = ("grad", "grad_var")

_lock = threading.Lock()
_watches: list[GradientReads] = []


class GradientReads:
    """A watch, off at first.

    Attributes
    ----------
    seen
        Whether a gradient was read while it was on.
    """

    def __init__(self) -> None:
        self.seen = False
        self._parameters: set[int] = set()
        self._on = self._refuses = False
        self._paused = True

    def start(self, parameters: Iterable[Any], refuses: bool = False) -> None:
        """Begin to watch these; reads count from the end of the first backward pass on: see `go_on`.

        Parameters
        ----------
        parameters
            Objects of `chainer.Parameter`.
        refuses
            Whether a read that counts raises `ScheduleError`.
        """
        with _lock:
            _watches.append(self)
            self._parameters = {id(param) for param in parameters}
            self._on, self._paused, self._refuses = True, True, refuses
            for name in WATCHED:
                setattr(chainer.Parameter, name, _watched(name))

    def stop(self) -> None:
        """End the watch; without another one, Chainer's own attributes are back."""
        with _lock:
            if self in _watches:
                _watches.remove(self)
            self._on = False
            if not _watches:
                for name in WATCHED:
                    if name in chainer.Parameter.__dict__:
                        delattr(chainer.Parameter, name)

    def pause(self) -> None:
        """Stop counting: the next reads are Chainer's."""
        self._paused = True

    def go_on(self) -> None:
        """Count again: the next reads are the program's."""
        self._paused = False

    def _note(self, param: Any) -> None:
        if self._on and not self._paused and id(param) in self._parameters:
            if self._refuses:
                raise ScheduleError(
                    f"the gradient of the parameter {param.name} is read after the backward pass, where it may be "
                    "gone; expected no such read with watch=False, or watch=True"
                )
            self.seen = True


def _watched(name: str) -> property:
    own: Any = getattr(chainer.Variable, name)

    def read(param: Any) -> Any:
        for watch in _watches:
            watch._note(param)
        return own.fget(param)

    return property(read, own.fset, doc=own.__doc__)
