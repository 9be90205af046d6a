"""Mark a function of a program as its step, by name and before the program runs: ``--step-function``.

A function of the program's own module is marked in its syntax tree, by a decorator, as it does not exist yet; one of
another module is replaced there.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import types
from collections.abc import Iterator, Sequence
from typing import Any

from ...common.errors import ScriptError
from .step_markers import refuse_generators, step

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def split(function: str) -> tuple[str, str]:
    """Return the module and the name that ``"module:function"`` holds.

    Raises
    ------
    ScriptError
        One of the two is missing.
    """
    module, _, name = function.partition(":")
    if not module or not name:
        raise ScriptError(f"the step function is {function!r}; expected module:function")
    return module, name


def mark_own(source: str | bytes, path: str, name: str, mark: str) -> tuple[types.CodeType, Any]:
    """Compile a program with a function marked.

    Parameters
    ----------
    source, path
        Those of the program.
    name
        ``"function"`` or ``"Class.method"``.
    mark
        What the decorator is called in the program's module.

    Returns
    -------
    code, decorator
        The program's code, and what its module needs under the name `mark`.

    Raises
    ------
    ScriptError
        There is no such function outside of functions, or it is a generator.
    """
    tree = ast.parse(source, path)
    *classes, last = name.split(".")
    body: Sequence[ast.stmt] = tree.body
    for part in classes:
        body = next((n.body for n in body if isinstance(n, ast.ClassDef) and n.name == part), ())
    definitions = [n for n in body if isinstance(n, _Function) and n.name == last]
    if not definitions:
        raise ScriptError(f"{path}: there is no function {name}; expected one outside of functions")
    for node in definitions:
        if any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in _of_function(node)):
            refuse_generators(name)
        node.decorator_list.append(ast.copy_location(ast.Name(mark, ast.Load()), node))
    return compile(tree, path, "exec", dont_inherit=True), step()


def _of_function(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in a function's own body, not in functions and classes within it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*_Function, ast.Lambda, ast.ClassDef)):
            yield from _of_function(child)


def mark_imported(module: str, name: str) -> None:
    """Import a module, and replace a function of it by one whose calls are steps.

    Raises
    ------
    ScriptError
        There is no such function, or it is a generator, or it is compiled and cannot be replaced.
    """
    *path, last = name.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for part in path:
            owner = getattr(owner, part)
        function: Any = inspect.getattr_static(owner, last)
    except (ImportError, AttributeError) as error:
        raise ScriptError(f"the step function {module}:{name} cannot be had: {error}") from None
    kind = type(function) if isinstance(function, (staticmethod, classmethod)) else None
    inner = function if kind is None else function.__func__
    if not callable(inner):
        raise ScriptError(f"{module}:{name} is a {type(inner).__name__}; expected a function")
    marked = step()(inner)
    try:
        setattr(owner, last, marked if kind is None else kind(marked))
    except (AttributeError, TypeError) as error:
        raise ScriptError(f"the step function {module}:{name} cannot be replaced: {error}") from None
