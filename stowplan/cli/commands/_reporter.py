"""Commands that answer with figures: printed here, as tables for people, or with ``--json`` as one object."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import click

from ...common.errors import StowplanError
from ..terminal import console, printable, reason_of


class Answer(NamedTuple):
    """What a command found.

    Attributes
    ----------
    figures
        What ``--json`` prints.
    parts
        Lines and tables for people; iterated over for them alone.
    bad
        Whether the result is negative: exit status 1.
    why
        A line on standard error if it is.
    """

    figures: Mapping[str, Any]
    parts: Iterable[object]
    bad: bool = False
    why: str = ""


class Reporter(click.Command):
    """A command whose function returns an `Answer`."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        how = "Print one JSON object and nothing else."
        self.params.append(click.Option(["--json", "as_json"], is_flag=True, help=how))

    def invoke(self, ctx: click.Context) -> None:
        """Run the command, print its answer, and exit with status 1 if the result is negative."""
        as_json = ctx.params.pop("as_json")
        try:
            answer: Answer = super().invoke(ctx)
        except (click.ClickException, StowplanError, OSError) as error:
            if as_json:
                text = error.format_message() if isinstance(error, click.ClickException) else reason_of(error)
                click.echo(json.dumps({"error": text}))
            raise
        if as_json:
            click.echo(json.dumps(answer.figures))
        else:
            printer = console()
            for part in answer.parts:
                printer.print(part, soft_wrap=isinstance(part, str))
        if answer.bad and answer.why:
            raise bad_news(answer.why)
        if answer.bad:
            ctx.exit(1)


def bad_news(why: str) -> click.ClickException:
    """Return what ends a command with exit status 1 and a line on standard error."""
    return click.ClickException(printable(why))


def reporter(
    short_help: str, example: str, cls: type[Reporter] = Reporter
) -> Callable[[Callable[..., Answer]], Reporter]:
    """Return the decorator of a command that answers, with its phrase in the list of commands and its example."""
    return click.command(cls=cls, short_help=short_help, epilog=f"Example: stowplan {example}")
