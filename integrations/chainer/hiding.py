"""Free or pack the hidden arrays of a function, those in its attributes, when nobody may read them any more.

A function's caller may read them when it has been applied: `F.dropout` returns its mask, SegNet pools by indexes and
unpools by the same ones. So they go when the next operator begins, unless the program still refers to the function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from .rerun import old_style, set_hidden


class Hiding:
    """The hidden arrays of the last function that was applied.

    Attributes
    ----------
    on_held
        Called with each function whose hidden arrays stay, as the program refers to it.
    """

    def __init__(self) -> None:
        self.on_held: Callable[[Any], object] = bool
        self._last: tuple[Any, Callable[[Any], None]] | None = None

    def later(self, function: Any, hide: Callable[[Any], None]) -> None:
        """Have a function called with this one when the next operator begins; it must not refer to it."""
        self._last = function, hide

    def hide(self) -> None:
        """Let the arrays go: an operator, or a backward pass, begins."""
        if self._last is None:
            return
        (function, hide), self._last = self._last, None
        own = old_style(function)
        nodes = [node for output in function.outputs or () if (node := output()) is not None]
        known = sum(node.creator_node is function for node in nodes)
        # Beside these, this name and the argument; of what an adapter wraps: the adapter, this name and the argument.
        if sys.getrefcount(function) <= known + 2 and (own is None or sys.getrefcount(own) <= 3):
            hide(function)
        else:
            self.on_held(function)

    def close(self) -> None:
        """Forget the function."""
        self._last = None


def pack(function: Any, name: str, packed: Any) -> None:
    """Put a hidden array into its packed form; None: it has none that gains."""
    if packed is not None:
        function._stowplan.packed[name] = packed
        set_hidden(function, name, None)


def clear(function: Any, names: Iterable[str]) -> None:
    """Free hidden arrays that only running the function again brings back."""
    for name in names:
        function._stowplan.cleared.add(name)
        set_hidden(function, name, None)
