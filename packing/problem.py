"""The packing problem: blocks with sizes and lifetimes, no trace of any framework.

A block is alive in ``[start, end)`` on the logical clock and occupies ``size`` bytes from its offset. *Gaps*
cut its lifetime: in a gap the block is absent, or occupies only a window ``[lower, upper)`` of its bytes.
What is left are the block's *pieces*: rectangles of time by bytes, which all share the block's offset::

    bytes                 pieces of one block with the gaps 4-6 (absent) and 8-9@0:2 (only its bytes 0 and 1)
      4 |  ####  ##
      3 |  ####  ##
      2 |  ####  #####
      1 |  ####  #####
        +--0123456789-> clock

Two blocks conflict when a piece of one and a piece of the other overlap in time and in address. A wrapped
block (freed in the following step) is a block alive in all of ``[0, period)`` except one gap.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ..common.errors import FormatError, ProblemError

IntArray = npt.NDArray[np.int64]

_MAX = int(np.iinfo(np.int64).max)


class Pieces(NamedTuple):
    """The pieces of all blocks, in compressed rows: block ``i`` has ``first[i]`` up to ``first[i + 1]``.

    A piece is a rectangle: it takes the bytes ``[lower, upper)``, counted from its block's offset, during the ticks
    ``[start, end)``. Pieces are never empty, follow each other in time within a block, and are int64 (k,); ``first``
    is int64 (n + 1,). A block without gaps is one piece, a block of size 0 has none.
    """

    first: IntArray
    start: IntArray
    end: IntArray
    lower: IntArray
    upper: IntArray


class Problem:
    """Blocks to be placed. Immutable; all columns are read-only int64 arrays.

    Parameters
    ----------
    size
        Bytes, (n,), 0 or more.
    start, end
        Lifetimes ``[start, end)`` in ticks of the logical clock, (n,), ``start < end``.
    gaps
        (m, 3) rows ``block, start, end``, or (m, 5) rows ``block, start, end, lower, upper``; inside the
        block's lifetime and disjoint. During a gap only the block's bytes ``[lower, upper)`` are occupied;
        ``0, 0``: none.
    alignment
        Every offset is a multiple of it; one value or (n,), 1 or more bytes.
    fixed
        Offsets demanded, (n,), -1 where the packer is free.
    hint
        Offsets to try, (n,), -1 for none; kept for files, no solver uses them.
    id
        Names of the blocks, kept for files and pictures; row numbers where None.
    apart
        (k, 2) rows of two blocks whose address ranges are disjoint even where their lifetimes are.
    contiguous
        Groups of rows, each a list: every block begins where the one before it in the list ends.

    Raises
    ------
    ProblemError
        Naming the first row that is wrong and what was expected.

    Notes
    -----
    ``gaps`` is stored as (m, 5), sorted by block and start, and holds 0, 0 for every empty window.

    Examples
    --------
    Block 0 is absent while block 1 is alive, so both fit into the same 100 bytes:

    >>> from stowplan.packing import Problem, pack
    >>> problem = Problem(size=[100, 100], start=[0, 2], end=[6, 4], gaps=[(0, 2, 4)])
    >>> pack(problem).peak
    100
    """

    size: IntArray
    start: IntArray
    end: IntArray
    gaps: IntArray
    alignment: IntArray
    fixed: IntArray
    hint: IntArray
    id: tuple[str, ...] | None
    apart: IntArray
    contiguous: tuple[IntArray, ...]

    def __init__(
        self,
        size: npt.ArrayLike,
        start: npt.ArrayLike,
        end: npt.ArrayLike,
        *,
        gaps: npt.ArrayLike | None = None,
        alignment: npt.ArrayLike = 1,
        fixed: npt.ArrayLike | None = None,
        hint: npt.ArrayLike | None = None,
        id: Iterable[object] | None = None,  # noqa: A002 (the files' word)
        apart: npt.ArrayLike | None = None,
        contiguous: Iterable[npt.ArrayLike] = (),
    ) -> None:
        size_, start_, end_ = _column("size", size), _column("start", start), _column("end", end)
        n = len(size_)
        alignment_ = _integers("alignment", alignment)
        if alignment_.shape not in ((), (n,)):
            raise ProblemError(f"alignment has the shape {alignment_.shape}; expected one value or ({n},)")
        alignment_ = _own(np.broadcast_to(alignment_, (n,)))
        fixed_, hint_ = (
            _own(np.full(n, -1, dtype=np.int64)) if column is None else _column(name, column)
            for name, column in (("fixed", fixed), ("hint", hint))
        )
        names = None if id is None else tuple(str(name) for name in id)
        columns = {"start": start_, "end": end_, "fixed": fixed_, "hint": hint_, "id": names}
        for name, entries in columns.items():
            if entries is not None and len(entries) != n:
                raise ProblemError(f"{name} has {len(entries)} entries; expected {n}, one per block")

        _refuse_wrong(size_, start_, end_, alignment_, fixed_, hint_)
        _refuse_large(size_, start_, end_, alignment_, fixed_)
        vars(self).update(
            size=size_,
            start=start_,
            end=end_,
            gaps=_gaps(gaps, size_, start_, end_),
            alignment=alignment_,
            fixed=fixed_,
            hint=hint_,
            id=names,
            apart=_apart(apart, n),
            contiguous=_contiguous(contiguous, n),
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Problem is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Problem is immutable: {name} cannot be deleted")

    def __len__(self) -> int:
        """Count the blocks."""
        return len(self.size)

    def __repr__(self) -> str:
        counts = [f"{len(self)} blocks", f"{len(self.gaps)} gaps", f"{int((self.fixed >= 0).sum())} fixed"]
        for name in ("apart", "contiguous"):
            if len(getattr(self, name)):
                counts.append(f"{len(getattr(self, name))} {name}")
        return f"Problem({', '.join(counts)})"

    def __eq__(self, other: object) -> bool:
        """Equal in every column; ids and hints count too."""
        if not isinstance(other, Problem):
            return NotImplemented
        columns = ("size", "start", "end", "gaps", "alignment", "fixed", "hint", "apart")
        return (
            self.id == other.id
            and all(np.array_equal(getattr(self, c), getattr(other, c)) for c in columns)
            and [g.tolist() for g in self.contiguous] == [g.tolist() for g in other.contiguous]
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        names = ("gaps", "alignment", "fixed", "hint", "id", "apart", "contiguous")
        options = {name: getattr(self, name) for name in names}
        return partial(Problem, **options), (self.size, self.start, self.end)

    @property
    def constrained(self) -> bool:
        """Whether blocks are tied to each other (apart or contiguous)."""
        return bool(len(self.apart) or self.contiguous)

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> Problem:
        """Read google/minimalloc's CSV; see ``stowplan.common.minimalloc``.

        A column ``offset`` fixes the blocks, -1 excepted. The format has no words for ``apart`` and ``contiguous``.

        Raises
        ------
        FormatError
            Naming file, line and what was expected.
        """
        from ..common import minimalloc

        t = minimalloc.read(path)
        try:
            return cls(
                t.size,
                t.lower,
                t.upper,
                gaps=t.gaps,
                alignment=t.alignment,
                fixed=t.offset,
                hint=t.hint,
                id=t.id,
            )
        except ProblemError as error:
            raise FormatError(path, str(error)) from None

    def to_csv(self, path: str | os.PathLike[str], offsets: npt.ArrayLike | None = None) -> None:
        """Write google/minimalloc's CSV, atomically.

        Parameters
        ----------
        path
            Replaced if it exists.
        offsets
            The answer, (n,), written as the column ``offset``. Without it that column holds the fixed
            offsets, if any.
        """
        answer = self.fixed if offsets is None else _column("offsets", offsets)
        if len(answer) != len(self):
            raise ProblemError(f"offsets has {len(answer)} entries; expected {len(self)}, one per block")
        from ..common import minimalloc

        table = minimalloc.Table(
            id=tuple(map(str, range(len(self)))) if self.id is None else self.id,
            lower=self.start,
            upper=self.end,
            size=self.size,
            alignment=self.alignment,
            hint=self.hint,
            gaps=self.gaps,
            offset=answer if offsets is not None or (answer >= 0).any() else None,
        )
        minimalloc.write(path, table)

    def pieces(self) -> Pieces:
        """Return the rectangles that the blocks are made of (computed once)."""
        return self._pieces

    @cached_property
    def _pieces(self) -> Pieces:
        n, (block, t0, t1, lower, upper) = len(self), self.gaps.T
        # Candidates: what precedes each gap, each gap's window, what follows each block's last gap. Empty ones
        # are dropped.
        resume = self.start.copy()  # where the block's tail begins
        before = self.start[block]
        if len(block):
            follows = np.flatnonzero(block[1:] == block[:-1]) + 1
            before[follows] = t1[follows - 1]
            resume[block] = t1  # rows rise in time: the last assignment wins
        zeros = np.zeros(n + len(block), dtype=np.int64)
        of = np.concatenate([block, block, np.arange(n)])
        start = np.concatenate([before, t0, resume])
        end = np.concatenate([t0, t1, self.end])
        low = np.concatenate([zeros[: len(block)], lower, zeros[:n]])
        high = np.concatenate([self.size[block], upper, self.size])
        keep = np.flatnonzero((start < end) & (low < high))
        if len(block):
            keep = keep[np.lexsort((start[keep], of[keep]))]
        first = np.zeros(n + 1, dtype=np.int64)
        np.cumsum(np.bincount(of[keep], minlength=n), out=first[1:])
        first.flags.writeable = False
        return Pieces(first, *(_own(column[keep]) for column in (start, end, low, high)))


COLUMNS = ("size", "start", "end", "alignment", "fixed")
"""The columns of a `Problem` that solvers see, besides the gaps."""


def changed(problem: Problem, **columns: Any) -> Problem:
    """Return the problem with other columns, and without ties, hints and names but those given."""
    return Problem(**{**{name: getattr(problem, name) for name in (*COLUMNS, "gaps")}, **columns})


def _refuse(bad: npt.NDArray[np.bool_], why: Callable[[int], str]) -> None:
    """Raise an error about the first row that is bad, if there is one."""
    if bad.any():
        raise ProblemError(why(int(bad.argmax())))


def _own(values: npt.ArrayLike) -> IntArray:
    """Copy: a column must not change under the problem's feet."""
    column = np.array(values, dtype=np.int64, order="C")
    column.flags.writeable = False
    return column


def _integers(name: str, values: npt.ArrayLike) -> IntArray:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise ProblemError(f"{name} is not an array: {error}") from None
    if array.size == 0 and array.dtype == np.float64:  # what NumPy makes of []
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ProblemError(f"{name} holds NaN or infinity; expected integers")
        if (array != np.floor(array)).any():
            raise ProblemError(f"{name} holds fractions; expected integers")
        if (np.abs(array) >= 2.0**53).any():
            raise ProblemError(
                f"{name} holds floating-point numbers that may have been rounded; expected integers"
            )
    elif array.dtype.kind == "u":
        if array.size and int(array.max()) > _MAX:
            raise ProblemError(f"{name} holds {int(array.max())}, which exceeds 64-bit integers")
    elif array.dtype.kind != "i":
        raise ProblemError(f"{name} has the dtype {array.dtype}; expected 64-bit integers")
    return array.astype(np.int64)


def _column(name: str, values: npt.ArrayLike) -> IntArray:
    array = _integers(name, values)
    if array.ndim != 1:
        raise ProblemError(f"{name} has the shape {array.shape}; expected one dimension")
    return _own(array)


def _refuse_wrong(
    size: IntArray, start: IntArray, end: IntArray, alignment: IntArray, fixed: IntArray, hint: IntArray
) -> None:
    """Refuse a block that could not be placed by itself."""
    _refuse(size < 0, lambda i: f"block {i}: size {size[i]} is negative; expected 0 or more bytes")
    _refuse(
        end <= start,
        lambda i: f"block {i}: the lifetime [{start[i]}, {end[i]}) is empty; expected start < end",
    )
    _refuse(alignment < 1, lambda i: f"block {i}: alignment {alignment[i]}; expected 1 or more bytes")
    _refuse(
        (fixed < -1) | ((fixed >= 0) & (fixed % alignment != 0)),
        lambda i: f"block {i}: fixed at {fixed[i]}; expected -1 or a multiple of alignment {alignment[i]}",
    )
    _refuse(hint < -1, lambda i: f"hint has the entry {hint[i]}; expected offsets, or -1 for none")


def _refuse_large(
    size: IntArray, start: IntArray, end: IntArray, alignment: IntArray, fixed: IntArray
) -> None:
    """Refuse what solvers could not add up in 64 bits."""
    if not len(size):
        return
    rough = float(size.sum(dtype=np.float64)) + float(alignment.sum(dtype=np.float64)) + float(fixed.max())
    if rough > 2.0**62 and sum(size.tolist()) + sum(alignment.tolist()) + int(fixed.max()) > _MAX:
        raise ProblemError(
            "the sum of all sizes (with alignment, above the highest fixed offset) exceeds 64-bit integers"
        )
    if int(end.max()) - int(start.min()) > _MAX:
        raise ProblemError("the span of all lifetimes exceeds 64-bit integers")


def _apart(pairs: npt.ArrayLike | None, n: int) -> IntArray:
    rows = _integers("apart", [] if pairs is None else pairs)
    if rows.size == 0:
        return _own(np.empty((0, 2), dtype=np.int64))
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise ProblemError(f"apart has the shape {rows.shape}; expected (k, 2)")
    wrong = ((rows < 0) | (rows >= n)).any(axis=1) | (rows[:, 0] == rows[:, 1])
    if wrong.any():
        _refuse_rows("apart", rows[wrong.argmax()].tolist(), n)
    return _own(rows)


def _contiguous(groups: Iterable[npt.ArrayLike], n: int) -> tuple[IntArray, ...]:
    columns = [_column("a group of contiguous", group) for group in groups]
    for column in columns:
        _refuse_rows("contiguous", column.tolist(), n)
    return tuple(column for column in columns if len(column) > 1)


def _refuse_rows(name: str, rows: list[int], n: int) -> None:
    for i in rows:
        if not 0 <= i < n:
            raise ProblemError(f"{name} names block {i}; expected 0 to {n - 1}")
    if len(set(rows)) < len(rows):
        raise ProblemError(f"{name} names a block twice in {rows}")


def _gaps(gaps: npt.ArrayLike | None, size: IntArray, start: IntArray, end: IntArray) -> IntArray:
    rows = _integers("gaps", [] if gaps is None else gaps)
    if rows.size == 0:
        return _own(np.empty((0, 5), dtype=np.int64))
    if rows.ndim != 2 or rows.shape[1] not in (3, 5):
        raise ProblemError(f"gaps has the shape {rows.shape}; expected (m, 3) or (m, 5)")
    if rows.shape[1] == 3:
        rows = np.hstack([rows, np.zeros((len(rows), 2), dtype=np.int64)])
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    block, t0, t1, lower, upper = rows.T
    _refuse(
        (block < 0) | (block >= len(size)),
        lambda k: f"a gap names block {block[k]}; expected 0 to {len(size) - 1}",
    )
    _refuse(
        (t0 >= t1) | (t0 < start[block]) | (t1 > end[block]),
        lambda k: (
            f"block {block[k]}: the gap [{t0[k]}, {t1[k]}) is empty or leaves the lifetime "
            f"[{start[block[k]]}, {end[block[k]]})"
        ),
    )
    _refuse(
        (lower < 0) | (lower > upper) | (upper > size[block]),
        lambda k: (
            f"block {block[k]}: the window [{lower[k]}, {upper[k]}) of the gap [{t0[k]}, {t1[k]}) "
            f"leaves the block's {size[block[k]]} bytes"
        ),
    )
    _refuse(
        (block[1:] == block[:-1]) & (t0[1:] < t1[:-1]),
        lambda k: f"block {block[k]}: the gaps at {t0[k]} and {t0[k + 1]} overlap",
    )
    rows[lower == upper, 3:] = 0
    return _own(rows)
