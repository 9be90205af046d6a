"""Sizes at which a function's own code switches: comparisons of an array's size with a number.

Small arrays cannot show what ``if x.size > 10**6`` does beyond. Of the function and the functions of its module that it
names, the source is read; a comparison of ``size``, ``nbytes``, ``shape`` or ``len()`` with a number is a switch, and
the laws tell nothing of arguments on its other side. What libraries do inside is not read.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["switches"]

_LENGTH = "length"
_KINDS = {"size": "size", "nbytes": "nbytes", "shape": _LENGTH}


def switches(function: Callable[..., Any]) -> list[tuple[str, int, str]]:
    """Return the switches: ``"size"``, ``"nbytes"`` or ``"length"``, the number, and the line."""
    found: list[tuple[str, int, str]] = []
    seen: set[Any] = set()
    todo: list[Any] = [function]
    while todo:
        one = inspect.unwrap(todo.pop())
        code = getattr(one, "__code__", None)
        if not isinstance(one, types.FunctionType) or code in seen:
            continue
        seen.add(code)
        named = (one.__globals__.get(name) for name in one.__code__.co_names)
        todo += [other for other in named if getattr(other, "__module__", "") == one.__module__]
        try:
            lines, first = inspect.getsourcelines(one)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                number = max(
                    (n for part in ast.walk(node) if (n := _number(part, one.__globals__))), default=0
                )
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
            yield _LENGTH
