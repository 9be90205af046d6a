"""Read text files that nothing is known of, line by line; a line longer than any log's is refused."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

from ...common.errors import FormatError

LONGEST_LINE = 1 << 16


def first_line(head: bytes) -> str:
    """Return the first line that is not empty of the beginning of a file, which may be of any encoding."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n")[0].decode("latin-1").rstrip()


def lines_of(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, from 1, without their ends.

    A last line that does not end is left out, with a warning: its writer was stopped, and its last number may lack
    digits.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    FormatError
        A line is longer than ``LONGEST_LINE`` bytes, or not UTF-8.
    OSError
        The file cannot be opened.
    """
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise FormatError(path, f"a line of more than {LONGEST_LINE} bytes; expected a log", number)
            if not line.endswith(b"\n"):
                cut = "the last line is cut off; it is left out"
                warnings.warn_explicit(cut, RuntimeWarning, os.fspath(path), number)
                return
            try:
                yield number, line.rstrip(b"\r\n").decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise FormatError(path, f"not text in UTF-8 ({error.reason})", number) from None
