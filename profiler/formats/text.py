"""Text files, line by line, none longer than a line of a log can be."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ...errors import FormatError

LONGEST_LINE = 1 << 16


def lines_of(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, from 1, without their ends.

    Raises
    ------
    FormatError
        A line is longer than `LONGEST_LINE` bytes, or not UTF-8.
    OSError
        The file cannot be opened.
    """
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise FormatError(path, f"a line of more than {LONGEST_LINE} bytes; expected a log", number)
            try:
                yield number, line.rstrip(b"\r\n").decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise FormatError(path, f"not text in UTF-8 ({error.reason})", number) from None
