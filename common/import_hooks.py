"""Call a function as soon as a program has imported a module, without importing the module oneself."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def once_imported(
    name: str,
    action: Callable[[], object] = lambda: None,
    *,
    during: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Callable[[], None]:
    """Call a function once, right after a module is imported, whenever that is; at once if it is imported already.

    Parameters
    ----------
    name
        A module, by its full name.
    action
        Called in the thread that imports. Its exceptions are raised by the import.
    during
        Returns a context manager that is entered while the module's code runs.

    Returns
    -------
    callable
        Calling it calls the matter off.
    """
    finder = _Finder(name, action, during)
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, finder)
    return finder.leave


@dataclass(eq=False)
class _Finder:
    """Finds a module by the other finders, and has its loader call the action."""

    name: str
    action: Callable[[], object]
    during: Callable[[], AbstractContextManager[Any]]
    asks_others: bool = False

    def leave(self) -> None:
        if sys.meta_path is not None and self in sys.meta_path:  # None: the interpreter goes down
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name or self.asks_others:
            return None
        self.asks_others = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.asks_others = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                with self.during():
                    execute(module)
                self.leave()  # not earlier: find_spec is also called by programs that only look for the module
                self.action()

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
