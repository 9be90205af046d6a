"""What goes to the terminal. In names from files and programs it must find nothing to obey."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

_WIDEST = 10_000
"""Columns of what is no terminal."""
_NARROWEST_TEXT = 12
"""Columns that a text in a table is folded to, at most, where a terminal is narrow."""

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def printable(text: str) -> str:
    """Return a text whose characters that are not printable, but for ends of lines, are escaped as Python does."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def reason_of(error: Exception) -> str:
    """Return an error as a line: what it is about comes first."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return printable(f"{error.filename}: {error.strerror[:1].lower()}{error.strerror[1:]}")
    return printable(str(error))


def say(text: str) -> None:
    """Print lines to standard error."""
    import click

    click.echo(printable(text), err=True)


def console(*, stderr: bool = False) -> Console:
    """Return what prints tables, and takes no text for markup; into a pipe or a file as wide as they are.

    In a terminal that is too narrow for a table, whatever width it has or says that it has, its lines are broken: no
    number loses a digit.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    class Printable(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            self.width = max(self.width, 1)  # of no width at all, nothing is printed
            for table in (one for one in objects if isinstance(one, Table)):
                numbers = [column for column in table.columns if column.no_wrap]
                texts = [column for column in table.columns if not column.no_wrap]
                for column in numbers:
                    column.min_width = max(cell_len(str(text)) for text in (column.header, *column.cells))
                for column in texts:
                    column.max_width = _NARROWEST_TEXT
                roomy = self.options.update(max_width=_WIDEST)
                self.width = max(self.width, Measurement.get(self, roomy, table).minimum)
                for column in texts:
                    column.max_width = None
            super().print(*objects, **options)

        def render_str(self, text: str, **options: Any) -> Text:  # of all text but Text
            return super().render_str(printable(text), **options)

    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else _WIDEST
    return Printable(stderr=stderr, markup=False, emoji=False, highlight=False, width=width)
