"""The command ``stowplan``. One module of `stowplan.commands` holds one command.

Results go to standard output, everything else (progress, errors) to standard error. Exit status: 0; 1 if the command
ran and its answer is bad news; 2 for bad input, with one line that says what is wrong, where, and what was expected,
and nothing written.
"""

from __future__ import annotations

from typing import Any

import click

from ._version import __version__
from .commands._options import EXIT_STATUS
from .commands.compare import compare
from .commands.convert import convert
from .commands.demo import demo
from .commands.fit import fit
from .commands.order import order
from .commands.pack import pack
from .commands.profile import profile
from .commands.report import report
from .commands.run import run
from .commands.schedule import schedule
from .commands.show import show
from .errors import StowplanError


class _BadInput(click.ClickException):
    exit_code = 2


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (StowplanError, OSError) as error:
            raise _BadInput(str(error)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_STATUS)
@click.version_option(__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Plan the memory of a step that repeats, and serve it from one arena."""


main.add_command(compare)
main.add_command(convert)
main.add_command(demo)
main.add_command(fit)
main.add_command(order)
main.add_command(pack)
main.add_command(profile)
main.add_command(report)
main.add_command(run)
main.add_command(schedule)
main.add_command(show)
