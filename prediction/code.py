"""What the code of a function tells of its laws: sizes at which it switches, and what they depend on.

Small arrays cannot show what ``if x.size > 10**6`` does beyond. Of the function and the functions of its module that it
names, the source is read; a comparison of ``size``, ``nbytes``, ``shape`` or ``len()`` with a number is a switch, and
the laws tell nothing of arguments on its other side. What libraries do inside is not read.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

__all__ = ["fingerprint", "switches"]

_KINDS = {"size": "size", "nbytes": "nbytes", "shape": "length"}


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


def switches(function: Callable[..., Any]) -> list[tuple[str, int, str]]:
    """Return the switches: ``"size"``, ``"nbytes"`` or ``"length"``, the number, and the line."""
    found: list[tuple[str, int, str]] = []
    for one, _ in functions_of(function):
        try:
            lines, first = inspect.getsourcelines(one)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                numbers = (_number(part, one.__globals__) for part in ast.walk(node))
                number = max(numbers, default=0)
                where = f"{one.__code__.co_filename}:{first + node.lineno - 1} {one.__name__}"
                found += [(kind, number, where) for kind in sorted(set(_kinds(node))) if number]
    return found


def _number(node: ast.AST, names: dict[str, Any]) -> int:
    """Return a constant of the code, or one of its module's; 0 if it is neither."""
    value: object = 0
    if isinstance(node, ast.BinOp):
        # The compiler folds 10**6 into one constant; it leaves names, and results that are too large, to the run.
        code = compile(ast.Expression(node), "", "eval")
        value = code.co_consts[0] if len(code.co_consts) == 1 and not code.co_names else 0
    elif isinstance(node, ast.Constant):
        value = node.value
    elif isinstance(node, ast.Name):
        value = names.get(node.id)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 1 else 0


def _kinds(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in _KINDS:
            yield _KINDS[part.attr]
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "len":
            yield "length"


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
