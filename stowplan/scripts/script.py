"""Run a Python script as ``python SCRIPT`` does, with a function of it or of a module marked as the step."""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ScriptError
from .step_markers import step

_MARK = "__stowplan_step__"
_FAILED, _INTERRUPTED = 1, 130


@dataclass(frozen=True)
class Script:
    """A script, read but not run.

    Attributes
    ----------
    path
        As it was given.
    tree
        Its syntax.
    imports
        Top-level names of the modules that its own code imports, anywhere in it.
    """

    path: str
    tree: ast.Module
    imports: frozenset[str]

    @classmethod
    def read(cls, path: str) -> Script:
        """Read a script.

        Raises
        ------
        ScriptError
            It is not Python.
        OSError
            It cannot be read.
        """
        with open(path, "rb") as file:
            source = file.read()
        try:
            tree = ast.parse(source, path)
        except (SyntaxError, ValueError) as error:
            raise ScriptError(f"{path}: {error}") from None
        names: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
        return cls(path, tree, frozenset(names))

    def mark(self, function: str) -> None:
        """Make each call of a function a step.

        Parameters
        ----------
        function
            ``"module:function"`` or ``"module:Class.method"``; the script's own module is ``__main__``.

        Raises
        ------
        ScriptError
            There is no such function.
        """
        module, _, name = function.partition(":")
        if not module or not name:
            raise ScriptError(f"the step function is {function!r}; expected module:function")
        if module == "__main__":
            self._mark_own(name)
        else:
            _mark_imported(module, name)

    def _mark_own(self, name: str) -> None:
        *classes, last = name.split(".")
        body: Sequence[ast.stmt] = self.tree.body
        for part in classes:
            body = next((n.body for n in body if isinstance(n, ast.ClassDef) and n.name == part), ())
        definitions = [n for n in body if isinstance(n, ast.FunctionDef) and n.name == last]
        if not definitions:
            raise ScriptError(f"{self.path}: there is no function {name}; expected one outside of functions")
        for node in definitions:
            node.decorator_list.append(ast.copy_location(ast.Name(_MARK, ast.Load()), node))

    def prepare(self) -> None:
        """If the script imports Chainer, import it here first, with `enable_chainer`'s fixes for today's versions.

        Raises
        ------
        MissingDependencyError
            Chainer is not installed, or cannot be imported.
        """
        if "chainer" in self.imports:
            from ..compat import enable_chainer

            enable_chainer()

    def run(self, arguments: Sequence[str]) -> int:
        """Run the script; return its exit status. An exception that it raises is printed as Python prints it."""
        module = types.ModuleType("__main__")
        module.__file__ = self.path
        module.__dict__.update({"__builtins__": builtins, _MARK: step()})
        before = sys.argv, sys.path[0], sys.modules["__main__"]
        sys.argv = [self.path, *arguments]
        sys.path[0] = os.path.dirname(os.path.abspath(self.path))
        sys.modules["__main__"] = module
        try:
            exec(compile(self.tree, self.path, "exec"), module.__dict__)
        except SystemExit as leaving:
            return _status(leaving.code)
        except KeyboardInterrupt:
            return _INTERRUPTED
        except BaseException as error:
            trace = error.__traceback__
            traceback.print_exception(type(error), error, trace.tb_next if trace else None)
            return _FAILED
        finally:
            sys.stdout.flush()
            sys.argv, sys.path[0], sys.modules["__main__"] = before
        return 0


def _status(code: object) -> int:
    """Return the exit status for the code of a SystemExit, as Python does."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return _FAILED


def _mark_imported(module: str, name: str) -> None:
    *path, last = name.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for part in path:
            owner = getattr(owner, part)
        function: Callable[..., Any] = getattr(owner, last)
    except (ImportError, AttributeError) as error:
        raise ScriptError(f"the step function {module}:{name} cannot be had: {error}") from None
    setattr(owner, last, step()(function))
