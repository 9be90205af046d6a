"""Run what ``python`` runs, as ``python`` runs it, with a function of it or of a module marked as the step.

======================  ====================================  ==========================  ==========================
on the command line     what is run                           ``sys.path[0]``             ``sys.argv[0]``
======================  ====================================  ==========================  ==========================
``train.py``            the file                              its folder                  as given
``-m package.module``   the module; of a package, __main__    the current folder          the module's file
``folder``, ``a.pyz``   its ``__main__.py``                   the folder, the archive     as given
``-``                   standard input                        ``""``                      ``-``
======================  ====================================  ==========================  ==========================

The module ``__main__``, ``sys.argv`` and ``sys.path`` stay as the program has left them, as threads, functions of
`atexit` and pickles of the program's own classes may still need them.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import pkgutil
import sys
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import PurePath
from typing import Any, NamedTuple

from ...common.errors import ScriptError

_MARK = "__stowplan_step__"
_FAILED = 1
INTERRUPTED = 130
"""Exit status of a program that Ctrl-C has ended."""


class _Main(NamedTuple):
    """What becomes the module ``__main__``: its source (None where there is only code), and its attributes."""

    code: types.CodeType
    source: str | bytes | None
    file: str
    argv0: str
    path0: str
    spec: ModuleSpec | None = None
    loader: Any = None


class Script:
    """A program that is about to run.

    Parameters
    ----------
    target
        A file, a folder or an archive with a ``__main__.py``, ``-``, or the name of a module.
    module
        Whether it is the name of a module.

    Attributes
    ----------
    name
        The program's, without folder and suffix.

    Raises
    ------
    ScriptError
        A file that is not Python.
    OSError
        A file that cannot be read.
    """

    def __init__(self, target: str, *, module: bool = False) -> None:
        self._target = target
        self._is_module = module
        self._is_container = not module and target != "-" and pkgutil.get_importer(target) is not None
        if module:
            self.name = target.rpartition(".")[2]
        else:
            self.name = "stdin" if target == "-" else PurePath(os.path.abspath(target)).stem
        # A file is read before anything else happens. Modules are found late: their packages are run for it.
        self._main = None if module or self._is_container else self._file()

    def __str__(self) -> str:
        return self._target

    def run(self, arguments: Sequence[str], step_function: str | None = None) -> int:
        """Run the program; return its exit status. An exception that it raises is shown as Python shows it.

        Parameters
        ----------
        arguments
            ``sys.argv[1:]``.
        step_function
            Each call of it is a step: ``"module:function"`` or ``"module:Class.method"``; the program's own module is
            ``__main__``.

        Raises
        ------
        ScriptError
            There is no such module, or no such function, or its calls cannot be steps.
        """
        try:
            code, module = self._become_main(arguments, step_function)
        except ScriptError:
            raise
        except BaseException as error:
            return _end(error)
        try:
            exec(code, module.__dict__)
        except BaseException as error:
            return _end(error)
        finally:
            sys.stdout.flush()
        return 0

    def _become_main(
        self, arguments: Sequence[str], step_function: str | None
    ) -> tuple[types.CodeType, types.ModuleType]:
        """Make this the process's program, up to its first line."""
        sys.argv = ["-m" if self._is_module else self._target, *arguments]
        if self._main is not None:
            _set_path(self._main.path0)
            main = self._main
        elif self._is_container:
            # `stowplan` or `python -m stowplan` has a folder of its own at the front, unless that was ruled out.
            own = 0 if getattr(sys.flags, "safe_path", False) else 1
            sys.path[:own] = [os.path.join(os.getcwd(), self._target)]
            main = self._from_container()
        else:
            _set_path(os.getcwd())
            main = self._from_module()
        sys.argv[0] = main.argv0
        module = types.ModuleType("__main__")
        module.__dict__.update(
            __builtins__=builtins,
            __file__=main.file,
            __loader__=main.loader,
            __package__=None if main.spec is None else main.spec.parent,
            __spec__=main.spec,
            __cached__=None if main.spec is None else main.spec.cached,
        )
        code = main.code
        if step_function is not None:
            from .step_functions import mark_imported, mark_own, split

            owner, name = split(step_function)
            names = {"__main__", self._target if self._is_module else "__main__"}
            if owner not in names:
                mark_imported(owner, name)
            elif main.source is None:
                raise ScriptError(f"{self}: {name} cannot be marked: there is no source; expected a .py file")
            else:
                code, mark = mark_own(main.source, main.file, name, _MARK)
                module.__dict__[_MARK] = mark
        sys.modules["__main__"] = module
        return code, module

    def _file(self) -> _Main:
        if self._target == "-":
            source: bytes = sys.stdin.buffer.read()
            return _Main(self._compiled(source, "<stdin>"), source, "<stdin>", "-", "")
        with open(self._target, "rb") as file:
            source = file.read()
        path = os.path.join(os.getcwd(), self._target)  # as python has it, with what points to parent folders
        folder = os.path.dirname(os.path.realpath(self._target))
        code = self._compiled(source, path)
        return _Main(code, source, path, self._target, folder, loader=SourceFileLoader("__main__", path))

    def _compiled(self, source: bytes, path: str) -> types.CodeType:
        try:
            return compile(source, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise ScriptError(f"{self._target}: {error}") from None

    def _from_container(self) -> _Main:
        finder = pkgutil.get_importer(os.path.join(os.getcwd(), self._target))
        assert finder is not None
        spec = finder.find_spec("__main__")
        if spec is None:
            raise ScriptError(
                f"{self}: there is no __main__.py in it; expected a file, or a program's folder"
            )
        return _with_code(spec, self._target)

    def _from_module(self) -> _Main:
        name = self._target
        if name.startswith("."):
            raise ScriptError(f"{name} is relative; expected a module's name from its topmost package on")
        try:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.submodule_search_locations is not None:
                name += ".__main__"
                spec = importlib.util.find_spec(name)
                if spec is None:
                    raise ScriptError(f"{self}: a package without __main__; expected a module of it")
        except ValueError as error:  # a module without a spec
            raise ScriptError(f"{self}: {error}; expected a module's name") from None
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            spec = None
        if spec is None:
            raise ScriptError(f"there is no module named {name}")
        return _with_code(spec, spec.origin or name)


def _with_code(spec: ModuleSpec, argv0: str) -> _Main:
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if code is None:
        raise ScriptError(f"{spec.name}: there is no Python code in it that could run as a program")
    source = loader.get_source(spec.name) if hasattr(loader, "get_source") else None
    return _Main(code, source, spec.origin or code.co_filename, argv0, "", spec, loader)


def _set_path(first: str) -> None:
    if not getattr(sys.flags, "safe_path", False):  # python -P leaves the folder out
        sys.path[0] = first


def _end(error: BaseException) -> int:
    """Show what ended the program as Python shows it, without frames of ours; return the exit status."""
    if isinstance(error, SystemExit):
        return _status(error.code)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    sys.stderr.flush()
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else _FAILED


def _status(code: object) -> int:
    """Return the exit status for the code of a SystemExit, as Python does."""
    if code is None or isinstance(code, int):
        return int(code or 0) & 0xFF
    print(code, file=sys.stderr)
    return _FAILED
