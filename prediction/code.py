"""What the laws of a function depend on, for the file in which a later process finds them.

It is the code of the function and of those of its module that it names, with constants and defaults; and versions: of
Python, of stowplan and of the libraries that they name.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

__all__ = ["fingerprint"]


def functions_of(function: Callable[..., Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield a function and those of its module that it calls, each with the values that it names."""
    seen: set[types.CodeType] = set()
    todo: list[Any] = [function]
    while todo:
        one = inspect.unwrap(todo.pop())
        code = getattr(one, "__code__", None)
        if not isinstance(code, types.CodeType) or code in seen:
            continue
        seen.add(code)
        named = [one.__globals__.get(name) for inner in _codes(code) for name in inner.co_names]
        for cell in one.__closure__ or ():
            with suppress(ValueError):  # not filled yet
                named.append(cell.cell_contents)
        todo += [
            value for value in named if callable(value) and getattr(value, "__module__", "") == one.__module__
        ]
        yield one, named


def fingerprint(function: Callable[..., Any]) -> list[str]:
    """Return what its laws and the lines that they name depend on: code, where it stands, and versions."""
    from .._version import __version__

    parts = [f"python {sys.version}", f"stowplan {__version__}", name_in_module(function)]
    for one, named in functions_of(function):
        for code in _codes(one.__code__):
            constants = [value for value in code.co_consts if not isinstance(value, types.CodeType)]
            parts.append(repr((code.co_code, code.co_names, code.co_varnames, constants)))
        parts.append(repr((one.__defaults__, one.__kwdefaults__)))
        parts.append(f"{one.__code__.co_filename}:{one.__code__.co_firstlineno}")  # which messages name
        for value in named:
            module = (
                value
                if isinstance(value, types.ModuleType)
                else sys.modules.get(getattr(value, "__module__", None) or "")
            )
            top = sys.modules.get(module.__name__.partition(".")[0]) if module is not None else None
            parts.append(f"{getattr(top, '__name__', '')} {getattr(top, '__version__', '')}")
            parts.append(
                repr(value) if isinstance(value, (int, float, str, bool, tuple)) else name_in_module(value)
            )
    return parts


def name_in_module(value: Any) -> str:
    """Return a name for what has no code to read."""
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', type(value).__name__)}"


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code, and that of functions within."""
    yield code
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from _codes(value)
