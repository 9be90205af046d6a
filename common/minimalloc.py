"""Read and write google/minimalloc's CSV, which memory planners exchange problems in, as plain columns.

One row is one block. The header names the columns, in any order and in several spellings::

    id,lower,upper,size,alignment,gaps,offset
    w1,0,9,4096,512,3-5 7-8@0:64,0

============================  =========================================================================
column (other spellings)      meaning
============================  =========================================================================
id (buffer, buffer_id)        any text, in quotes where it holds a comma, a quote or a line break; need not be
                              in order nor unique: answers go by row
lower (start, begin)          first tick of the lifetime
upper                         first tick after it; spelled ``end`` it is the last tick, *inclusive*
size                          bytes, 0 or more
alignment                     optional: the offset is a multiple of it (default 1)
hint                          optional: an offset to try, -1 for none
gaps                          optional: space-separated ``t0-t1[@w0:w1]``: absent in [t0, t1), or occupying
                              only the bytes [w0, w1) of the block; t1 is inclusive where ``end`` is used
offset                        optional: a fixed position in a problem, the answer in a solution; -1 for none
============================  =========================================================================

In memory every interval is half-open. Reading checks everything and names the file and the line; writing is
atomic.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from .archive import what_it_is
from .errors import FormatError
from .files import atomic_write

IntArray = npt.NDArray[np.int64]

SPELLINGS = {
    **{name: name for name in ("id", "lower", "upper", "size", "alignment", "hint", "gaps", "offset")},
    **dict.fromkeys(("buffer", "buffer_id"), "id"),
    **dict.fromkeys(("start", "begin"), "lower"),
    "end": "upper",
}
"""Names of columns, in any header: to the name used here."""
_REQUIRED = ("id", "lower", "upper", "size")
_EXPECTED = (
    "expected a header with the columns id (or buffer, buffer_id), lower (or start, begin), "
    "upper (exclusive; or end, inclusive), size"
)
# 24 digits hold every 64-bit integer; int() refuses thousands with an error of its own.
_INTEGER = re.compile(r"[+-]?[0-9]{1,24}")
_GAP = re.compile(r"([+-]?[0-9]{1,24})-([+-]?[0-9]{1,24})(?:@([0-9]{1,24}):([0-9]{1,24}))?")
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class Table:
    """The columns of one file, one entry per row.

    Attributes
    ----------
    id
        Names, in the file's order.
    lower, upper
        Lifetimes ``[lower, upper)``, int64 (n,).
    size
        Bytes, int64 (n,).
    alignment
        Bytes, int64 (n,); 1 if the file does not tell.
    hint
        Bytes, int64 (n,); -1 if the file does not tell.
    gaps
        int64 (m, 5): row, start, end, window lower, window upper; sorted by row and start. A window ``[0,
        0)``: absent.
    offset
        Bytes, int64 (n,), -1 for none; or None if the file has no such column.
    """

    id: tuple[str, ...]
    lower: IntArray
    upper: IntArray
    size: IntArray
    alignment: IntArray
    hint: IntArray
    gaps: IntArray
    offset: IntArray | None


def read(path: str | os.PathLike[str]) -> Table:
    """Read a problem or a solution.

    Raises
    ------
    FormatError
        Naming file and line: an empty file, a missing or doubled column, a row of another length, a value
        that is no 64-bit integer, a negative size, an empty lifetime, a bad gap, alignment or offset.
    OSError
        The file cannot be opened.
    """
    lines, rows = _rows(path)
    if not rows:
        raise FormatError(path, f"the file is empty; {_EXPECTED}")
    where, inclusive = _header(path, rows[0], lines[0])
    width = len(rows[0])
    del rows[0], lines[0]
    for line, row in zip(lines, rows, strict=True):
        if len(row) != width:
            raise FormatError(path, f"{len(row)} fields; expected {width}, as in the header", line)

    def column(name: str, default: int | None = None) -> IntArray:
        if name not in where:
            return np.full(len(rows), default, dtype=np.int64)
        k = where[name]
        return _integers(path, name, [row[k] for row in rows], lines, default)

    lower, upper, size = column("lower"), column("upper"), column("size")
    alignment, hint = column("alignment", 1), column("hint", -1)
    offset = column("offset", -1) if "offset" in where else None
    if inclusive:
        _refuse(path, lines, upper == _INT64.max, upper, "end {} is out of range")
        upper += 1

    _refuse(path, lines, size < 0, size, "size {} is negative; expected 0 or more bytes")
    shown = upper - 1 if inclusive else upper
    empty = "the lifetime is empty: {} {}; expected {} than lower".format(
        "end" if inclusive else "upper", "{}", "no less" if inclusive else "more"
    )
    _refuse(path, lines, upper <= lower, shown, empty)
    _refuse(path, lines, alignment < 1, alignment, "alignment {}; expected 1 or more")
    _refuse(path, lines, hint < -1, hint, "hint {}; expected an offset, or -1 for none")
    if offset is not None:
        _refuse(path, lines, offset < -1, offset, "offset {}; expected 0 or more bytes, or -1 for none")
        bad = (offset >= 0) & (offset % alignment != 0)
        _refuse(path, lines, bad, offset, "offset {} is not a multiple of the row's alignment")
    gaps: list[tuple[int, int, int, int, int]] = []
    if "gaps" in where:
        k = where["gaps"]
        for i, row in enumerate(rows):
            if row[k].strip():
                block = (int(lower[i]), int(upper[i]), int(size[i]))
                gaps += [(i, *gap) for gap in _gaps(path, row[k], lines[i], inclusive, *block)]
    names = tuple(row[where["id"]].strip() for row in rows)
    gap_columns = np.array(gaps, dtype=np.int64).reshape(-1, 5)
    return Table(names, lower, upper, size, alignment, hint, gap_columns, offset)


def has_last_ticks(path: str | os.PathLike[str]) -> bool:
    """Whether a file that has been read names the last tick (``end``); a pipe, which is empty by then, does not say."""
    if not os.path.isfile(path):
        return False
    with open(path, encoding="utf-8-sig", newline="") as file:
        header = next(row for row in csv.reader(file) if any(cell.strip() for cell in row))
    return "end" in (cell.strip() for cell in header)


def _rows(path: str | os.PathLike[str]) -> tuple[list[int], list[list[str]]]:
    """Return the lines that are not empty: their numbers, and their fields."""
    lines: list[int] = []
    rows: list[list[str]] = []
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            first = next(file, "")
            if first.lstrip().startswith("{"):
                raise FormatError(path, f"{what_it_is(path, first.encode())}; {_EXPECTED}")
            reader = csv.reader(chain([first], file), strict=True)
            try:
                for row in reader:
                    if row and (len(row) > 1 or row[0].strip()):
                        lines.append(reader.line_num)
                        rows.append(row)
            except csv.Error as error:
                raise FormatError(path, f"not a CSV file ({error})", reader.line_num) from None
    except UnicodeDecodeError as error:
        raise FormatError(
            path,
            f"not a text file in UTF-8 ({error.reason} at byte {error.start}); expected google/minimalloc's CSV, which "
            "stowplan convert makes of a profile",
        ) from None
    return lines, rows


def write(path: str | os.PathLike[str], table: Table) -> None:
    """Write a problem or a solution, atomically.

    ``alignment``, ``hint`` and ``gaps`` are written only if some row needs them, ``offset`` if it is not
    None.

    Raises
    ------
    OSError
        The file cannot be written. The old one, if any, is untouched.
    """
    columns: dict[str, Sequence[object]] = {"id": [_quoted(name) for name in table.id]}
    for name, default in (("lower", None), ("upper", None), ("size", None), ("alignment", 1), ("hint", -1)):
        column = getattr(table, name)
        if default is None or (column != default).any():
            columns[name] = column.tolist()
    if len(table.gaps):
        texts: list[list[str]] = [[] for _ in table.id]
        for block, start, end, w0, w1 in table.gaps.tolist():
            texts[block].append(f"{start}-{end}" + (f"@{w0}:{w1}" if w1 > w0 else ""))
        columns["gaps"] = [" ".join(text) for text in texts]
    if table.offset is not None:
        columns["offset"] = table.offset.tolist()
    with atomic_write(path) as file:
        for row in (columns, *zip(*columns.values(), strict=True)):
            file.write(f"{','.join(map(str, row))}\n".encode())


def _quoted(text: str) -> str:
    # Not csv.writer: before Python 3.13 it left a bare carriage return, which its reader refuses, without quotes.
    return '"{}"'.format(text.replace('"', '""')) if any(c in text for c in ',"\r\n') else text


def _header(path: str | os.PathLike[str], row: list[str], line: int) -> tuple[dict[str, int], bool]:
    where: dict[str, int] = {}
    inclusive = False
    for k, cell in enumerate(row):
        name = SPELLINGS.get(cell.strip(), cell.strip())
        if name in where and cell.strip() in SPELLINGS:
            raise FormatError(path, f"the column {cell.strip()!r} appears twice (as {name!r})", line)
        where[name] = k
        inclusive |= cell.strip() == "end"
    for name in _REQUIRED:
        if name not in where:
            raise FormatError(path, f"the column {name!r} is missing; {_EXPECTED}", line)
    return where, inclusive


def _integers(
    path: str | os.PathLike[str], name: str, cells: list[str], lines: list[int], default: int | None
) -> IntArray:
    values: list[int] = []
    for line, cell in zip(lines, cells, strict=True):
        text = cell.strip()
        if not text and default is not None:
            values.append(default)
        elif _INTEGER.fullmatch(text) is None or not _INT64.min <= int(text) <= _INT64.max:
            raise FormatError(path, f"{name} {cell!r} is not an integer of 64 bits", line)
        else:
            values.append(int(text))
    return np.array(values, dtype=np.int64)


def _refuse(
    path: str | os.PathLike[str], lines: list[int], bad: npt.NDArray[np.bool_], values: IntArray, message: str
) -> None:
    """Raise for the first bad row; ``{}`` in the message stands for its value."""
    if bad.any():
        i = int(bad.argmax())
        raise FormatError(path, message.format(values[i]), lines[i])


def _gaps(
    path: str | os.PathLike[str], text: str, line: int, inclusive: bool, lower: int, upper: int, size: int
) -> list[tuple[int, int, int, int]]:
    """Parse the gaps of one row into (start, end, window lower, window upper), by rising time."""
    gaps = []
    for part in text.split():
        match = _GAP.fullmatch(part)
        if match is None:
            raise FormatError(path, f"the gap {part!r} is malformed; expected t0-t1 or t0-t1@w0:w1", line)
        start, end = int(match[1]), int(match[2]) + inclusive
        if not lower <= start < end <= upper:
            lifetime = f"[{lower}, {upper})"
            raise FormatError(path, f"the gap {part!r} is empty or leaves the lifetime {lifetime}", line)
        w0, w1 = (0, 0) if match[3] is None else (int(match[3]), int(match[4]))
        if not w0 <= w1 <= size:
            raise FormatError(path, f"the window of the gap {part!r} leaves the block's {size} bytes", line)
        gaps.append((start, end, w0, w1) if w0 < w1 else (start, end, 0, 0))
    gaps.sort()
    for before, after in pairwise(gaps):
        if after[0] < before[1]:
            raise FormatError(path, f"the gaps at {before[0]} and {after[0]} overlap", line)
    return gaps
