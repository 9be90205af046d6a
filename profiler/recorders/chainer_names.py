"""Add the Chainer link and function that request a block to the block's call site.

::

    train.py:30 update > /predictor/conv1                                    a link, outside of functions
    train.py:30 update > /predictor/conv1 > Convolution2DFunction (forward)  a function that the link calls
    train.py:31 update > /predictor/conv1 > Convolution2DFunction (backward) its gradient: the link that called it
    train.py:32 update > Sum (forward)                                       a function that no link calls

Chainer's hooks tell which link and function run. The path of a link is made of the names of the links that call each
other, as in `Link.namedlinks`. Functions that run within another's backward count as the outer. If a call raises,
Chainer calls no hook at its end; the next call of the outermost link, or the next function, corrects the path.

The hooks keep no array alive, so profiles are the same as without them. This module imports Chainer.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import chainer

from .._recorder import CallSites
from ..unbroken import WeakKeys


class ChainerNames(chainer.FunctionHook):  # type: ignore[misc]
    """While entered, add Chainer's links and functions to the call sites of this thread.

    Parameters
    ----------
    sites
        Whose `asker` is set.
    """

    def __init__(self, sites: CallSites) -> None:
        self.name = f"stowplan {id(self)}"
        self._sites = sites
        self._hook = _Links(self)
        self._links: list[tuple[int, str]] = []  # those that run, outermost first: id(), path
        self._link_of: WeakKeys[str] = WeakKeys()  # by function
        self._goes_back = False

    def __enter__(self) -> ChainerNames:
        super().__enter__()
        self._hook.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hook.__exit__(*error)
        super().__exit__(*error)
        self._sites.asker = None

    # ---------------------------------------------------------------------------------------------- what Chainer tells

    def link_begins(self, link: Any) -> None:
        """Note that a link is called."""
        number = id(link)
        # If it is running already, its former call has raised.
        self._links = list(takewhile(lambda running: running[0] != number, self._links))
        path = self._links[-1][1] if self._links else ""
        self._links.append((number, f"{path}/{link.name}" if link.name else path))
        self._goes_back = False
        self._back_to_link()

    def link_ends(self) -> None:
        """Note that the innermost link has returned."""
        if self._links:
            self._links.pop()
        self._back_to_link()

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        """Note that a function is called."""
        if self._goes_back:
            return
        path = self._links[-1][1] if self._links else ""
        if path:
            self._link_of[function] = path
        self._ask(path, function, "forward")

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        """Note that a function has returned."""
        if not self._goes_back:
            self._back_to_link()

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        """Note that a function's backward is called."""
        self._goes_back = True
        self._ask(self._link_of.get(function, ""), function, "backward")

    def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        """Note that a function's backward has returned."""
        self._goes_back = False
        self._back_to_link()

    def _ask(self, path: str, function: Any, direction: str) -> None:
        # Not the label, which may hold a number that changes from step to step.
        name = f"{function._impl_name} ({direction})"
        self._sites.asker = f"{path} > {name}" if path else name

    def _back_to_link(self) -> None:
        self._sites.asker = self._links[-1][1] or None if self._links else None


class _Links(chainer.LinkHook):  # type: ignore[misc]
    def __init__(self, names: ChainerNames) -> None:
        self.name = f"stowplan {id(names)}"
        self._names = names

    def forward_preprocess(self, args: Any) -> None:
        self._names.link_begins(args.link)

    def forward_postprocess(self, args: Any) -> None:
        self._names.link_ends()
