"""A table of a paper's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


def timed(find: Callable[..., T], *arguments: Any, **options: Any) -> tuple[T, float]:
    """Return what a function returns, and the seconds of CPU time that it takes."""
    began = time.process_time()
    found = find(*arguments, **options)
    return found, time.process_time() - began


class Table(NamedTuple):
    """A heading, the columns, rows of cells, and what is to be said of them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> Iterator[str]:
        """Return the lines of the table in Markdown."""
        yield from (f"## {self.title}", "")
        yield from (
            "| " + " | ".join(row) + " |" for row in (self.columns, ["---"] * len(self.columns), *self.rows)
        )
        yield from ("", self.note, "") if self.note else ("",)


def beside(ours: float, theirs: float | None, digits: int = 3) -> str:
    """Write our figure, and the paper's in brackets where it is another one."""
    own = f"{ours:.{digits}f}"
    if theirs is None or own == f"{theirs:.{digits}f}":
        return own
    return f"{own} ({theirs:.{digits}f})"
