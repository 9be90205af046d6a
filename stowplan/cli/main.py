"""The command ``stowplan``. One module of `stowplan.cli.commands` holds one command.

Results go to standard output, everything else (progress, errors) to standard error. Exit status: 0; 1 if the command
ran with a negative result; 2 for bad input, with one line that tells what is wrong, where, and what was expected,
and nothing written.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from .._version import __version__
from ..common.errors import StowplanError
from .commands._options import EXIT_STATUS
from .commands.run import run
from .terminal import reason_of


class _BadInput(click.ClickException):
    exit_code = 2


GROUPS = {
    "Record": ("profile", "run", "demo"),
    "Inspect": ("show", "compare", "diff", "report"),
    "Predict": ("advise", "fit"),
    "Optimise": ("pack", "order", "schedule"),
    "Files": ("convert",),
}
COMMANDS = tuple(sorted(name for names in GROUPS.values() for name in names))


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
    """Loads a command's module when the command is requested."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name == "run":
            return _Run(cmd_name, short_help="Run an unchanged program through a pool.")
        command: click.Command = getattr(import_module(f"{__package__}.commands.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in GROUPS.items():
            with formatter.section(title):
                commands = [(name, self.get_command(ctx, name)) for name in names]
                formatter.write_dl(
                    [(name, command.short_help or "") for name, command in commands if command]
                )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (StowplanError, OSError) as error:
            raise _BadInput(reason_of(error)) from error


def _import(ctx: click.Context, param: click.Parameter, modules: tuple[str, ...]) -> None:
    if modules:
        sys.path.insert(0, "")  # as for `python -m`: a module of this folder
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise click.BadParameter(f"{module!r}: {error}", ctx, param) from error


@click.group(
    cls=_Group,
    commands=dict.fromkeys(COMMANDS, click.Command("")),  # the names; see get_command()
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=EXIT_STATUS,
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
@click.option(
    "--import",
    metavar="MODULE",
    multiple=True,
    expose_value=False,
    callback=_import,
    help="Import a module first, from this folder or as Python does: it registers solvers or file formats of yours.",
)
def main() -> None:
    """Plan the memory of a step that repeats, and serve it from one arena."""
