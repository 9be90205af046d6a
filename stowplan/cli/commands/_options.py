"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ...common.units import parse_bytes

F = TypeVar("F", bound=Callable[..., Any])

EXIT_STATUS = """\b
Exit status:
  0  done
  1  completed with a negative result: nothing fits, results differ
  2  bad input, reported in one line; nothing was written"""


class OutputFile(click.Path):
    """A file to be written. Refused before any work is done if its folder does not exist."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; fail if its folder does not exist."""
        path = Path(str(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"{path}: there is no folder {path.parent}", param, ctx)
        return path


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of Click only
    """What a function makes of a word; its ValueError tells what was found, and what was expected.

    Parameters
    ----------
    name
        What is parsed, for the help.
    parse
        The function.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what the function returns."""
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


BYTES = Parsed("bytes", parse_bytes)
"""A number of bytes: ``16GiB``, ``1.5 GB``, ``4096``; rounded down."""


class Name(click.ParamType):  # type: ignore[type-arg]
    """A name out of a list that is slow to import: completion offers them, and the code that takes one checks it.

    Parameters
    ----------
    kind
        What is named, for the help.
    known
        Imports and returns the names.
    """

    def __init__(self, kind: str, known: Callable[[], Iterable[str]]) -> None:
        self.name = kind
        self._known = known

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the names."""
        return [CompletionItem(name) for name in self._known() if name.startswith(incomplete)]


def solver_option_of(room: str) -> Callable[[F], F]:
    """Return the option ``--solver`` of a package that registers solvers, like ``"packing"``."""

    def known() -> Iterable[str]:
        names = import_module(f"stowplan.{room}.registry").names()
        return dict.fromkeys(("auto", *names))

    takes_best = "A solver's name; auto takes the best. For one of your own see stowplan --import."
    return click.option("--solver", type=Name("solver", known), default="auto", help=takes_best)


profile_argument = click.argument("profile", type=click.Path(path_type=Path))
solver_option = solver_option_of("packing")


def time_limit_option_of(seconds: float | None) -> Callable[[F], F]:
    """Return the option ``--time-limit`` with a default in seconds; None: no limit."""
    what = "Seconds at most, for solvers that keep improving (with a limit, auto does)."
    return click.option("--time-limit", type=click.FloatRange(min=0), default=seconds, help=what)


time_limit_option = time_limit_option_of(None)
threads_option = click.option("--threads", type=click.IntRange(min=1), default=1, help="Threads at most.")
alignment_option = click.option(
    "--alignment",
    type=click.IntRange(min=1),
    help="Bytes that the plan aligns blocks to.  [default: 64 for a NumPy profile, as NumpyPool; else 512]",
)


def _dimension(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not name or not number.isdecimal():
        raise ValueError(f"{text!r}; expected NAME=N, like batch=32")
    return name, int(number)


dimension_option = click.option(
    "--dimension",
    "dimensions",
    metavar="NAME=N",
    multiple=True,
    type=Parsed("dimension", _dimension),
    callback=lambda context, parameter, pairs: dict(pairs),
    help="Size of a dimension that an ONNX file leaves open; for one without a name, x[0]=N. Repeat it for each.",
)


def removed_option(name: str, instead: str) -> Callable[[F], F]:
    """Return an option that was removed: for one release, it is hidden, and an error that tells what to use instead."""

    def refuse_it(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(f"{name} was removed; expected {instead}", context)

    return click.option(
        name, is_flag=False, flag_value="", hidden=True, expose_value=False, callback=refuse_it
    )


def refuse(context: click.Context, names: Collection[str], what: str) -> None:
    """Raise if one of these parameters is given, which ``what`` has no use for."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{what}; expected no {max(parameter.opts, key=len)}")


def planning_options(command: F) -> F:
    """Add the options of all commands that plan, named as what `stowplan.insight.comparison.compare` takes."""
    for option in (threads_option, time_limit_option, solver_option, alignment_option):
        command = option(command)
    return command
