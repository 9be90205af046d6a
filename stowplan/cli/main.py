"""The command ``stowplan``. One module of `stowplan.cli.commands` holds one command.

Results go to standard output, everything else (progress, errors) to standard error. Exit status: 0; 1 if the command
ran and its answer is bad news; 2 for bad input, with one line that says what is wrong, where, and what was expected,
and nothing written.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from .._version import __version__
from ..errors import StowplanError
from .commands._options import EXIT_STATUS
from .commands.run import run
from .terminal import printable


class _BadInput(click.ClickException):
    exit_code = 2


COMMANDS = (
    "compare",
    "convert",
    "demo",
    "diff",
    "fit",
    "order",
    "pack",
    "profile",
    "report",
    "run",
    "schedule",
    "show",
)


class _Run(click.Command):
    """`stowplan.cli.commands.run`, which reads its words itself."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave all words to the command."""
        ctx.args = args
        return args

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and exit with its status."""
        ctx.exit(run(ctx.args))


class _Group(click.Group):
    """Loads a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name == "run":
            return _Run(cmd_name, short_help="Run an unchanged program through a pool.")
        command: click.Command = getattr(import_module(f"{__package__}.commands.{cmd_name}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (StowplanError, OSError) as error:
            raise _BadInput(printable(str(error))) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_STATUS)
@click.version_option(__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Plan the memory of a step that repeats, and serve it from one arena."""
