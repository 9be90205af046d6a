"""ChainerMN 7.8.1 on today's NumPy: the one thing of it that needs mending.

A multi-node iterator's ranks are told the size of the dataset as an array of one element, and make an integer of it by
``int(array)``. NumPy 1.25 to 2.3 warn about that for an array with dimensions; NumPy 2.4 raises. The ranks that raise
leave the others waiting. The one method that does it gets an ``int`` that takes the element.
"""

from __future__ import annotations

import functools
import types

import numpy as np

from .common.import_hooks import once_imported


@functools.cache
def mend_when_imported() -> None:
    """Mend ChainerMN as soon as the program has imported it, at once if it has; a second call changes nothing."""
    once_imported("chainermn", _mend)


def _mend() -> None:
    from chainermn.iterators import multi_node_iterator

    owner = multi_node_iterator._MultiNodeIteratorSlave
    owner.__init__ = seeing(owner.__init__, "int", lambda array: int(np.asarray(array).item()))


def seeing(function: types.FunctionType, name: str, value: object) -> types.FunctionType:
    """Return a function of the same code that sees another object under a global name."""
    given = types.FunctionType(
        function.__code__,
        {**function.__globals__, name: value},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    given.__doc__ = function.__doc__
    return given
