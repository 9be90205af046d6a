"""What goes to the terminal. In names from files and programs it must find nothing to obey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def printable(text: str) -> str:
    """Return a text whose characters that are not printable, but for ends of lines, are escaped as Python does."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def say(text: str) -> None:
    """Print lines to standard error."""
    import click

    click.echo(printable(text), err=True)


def console(*, stderr: bool = False) -> Console:
    """Return what prints tables, and takes no text for markup."""
    from rich.console import Console

    class Printable(Console):
        def render_str(self, text: str, **options: Any) -> Text:  # of all text but Text
            return super().render_str(printable(text), **options)

    return Printable(stderr=stderr, markup=False, emoji=False, highlight=False)
