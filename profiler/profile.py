"""The profile: the blocks of one step, in columns.

The logical clock advances by one at every allocation and every free of the step. The step repeats, so time is a circle
of length `period`::

    tick      0     1     2     3     4     5  =  0 of the following step
    block 0   [=================)                      start 0, end 3
    block 1               [-----------------           start 2, end -1: escaped, never freed
    block 2   ======)                 [=====           start 4, end 6: wrapped, freed at tick 1 of the following step

Wrapped blocks are Chainer's gradients, for example: `cleargrads` runs after the next forward pass.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..common.errors import FormatError, ProfileError
from .events import IntArray
from .program_summary import Program

ESCAPED = -1
UNKNOWN_NS = -1
UNKNOWN_SITE = -1
UNKNOWN_BYTES = -1
_FORMAT = "profile"
_VERSION = 1


def _none() -> IntArray:
    return np.empty(0, dtype=np.int64)


class LiveBytes(NamedTuple):
    """What makes up a program's live bytes at one moment; older ones include what other threads and streams have.

    Attributes
    ----------
    tick
        The moment; -1: before the first one, as a trace began.
    older, escaped, planned
        Bytes.
    """

    tick: int
    older: int
    escaped: int
    planned: int


@dataclass(frozen=True, eq=False)
class Profile:
    """The blocks of one step. Immutable; columns are read-only int64 arrays (n,), in the order of the requests.

    Attributes
    ----------
    size
        Bytes that were requested.
    start
        Tick of the allocation, ``0 <= start < period``, rising.
    end
        Tick of the free: above ``start``, at most ``start + period``. From ``period`` on: a wrapped block, freed at
        tick ``end - period`` of the following step. ``ESCAPED`` (-1): not freed by the end of the following step.
    stream
        The stream that the block was requested on; 0 on the host. Zeros if not given.
    alloc_ns
        Wall clock of the allocation, in nanoseconds since the epoch; ``UNKNOWN_NS`` (-1) if not known.
    free_ns
        The same of the free.
    period
        Length of the step in ticks.
    site
        Call site of each request, int32 (n,): a row of ``sites``; ``UNKNOWN_SITE`` (-1) if not recorded.
    sites
        Call sites, each once: ``"file:line function"``.
    alive
        The most bytes that the whole program had alive from each request to the next: older, escaped and planned
        blocks, and those of other threads; ``UNKNOWN_BYTES`` (-1) if not recorded. As in the repetition of the step, if
        there was one.
    program
        Counts of the recording that the step is of; None if not known.

    Raises
    ------
    ProfileError
        The columns contradict each other or the clock.

    Examples
    --------
    Five ticks: block 0 is freed at tick 3, block 1 escapes, and block 2 is freed at tick 1 of the following step:

    >>> from stowplan import Profile
    >>> profile = Profile(size=[300, 100, 200], start=[0, 2, 4], end=[3, -1, 6], period=5)
    >>> profile
    <Profile: 3 blocks (1 wrapped, 1 escaped), period 5, planned peak 500 bytes>
    >>> profile.live_bytes().tolist()  # of blocks 0 and 2, which a plan places
    [500, 300, 300, 0, 200]
    """

    size: IntArray
    start: IntArray
    end: IntArray
    stream: IntArray = field(default_factory=_none)
    alloc_ns: IntArray = field(default_factory=_none)
    free_ns: IntArray = field(default_factory=_none)
    period: int = 0
    site: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    sites: tuple[str, ...] = ()
    alive: IntArray = field(default_factory=_none)
    program: Program | None = None

    def __post_init__(self) -> None:
        n = np.asarray(self.size).shape[0] if np.asarray(self.size).ndim == 1 else -1
        unknown = {"stream": 0, "alloc_ns": UNKNOWN_NS, "free_ns": UNKNOWN_NS}
        unknown |= {"site": UNKNOWN_SITE, "alive": UNKNOWN_BYTES}
        for name in ("size", "start", "end", *unknown):
            given = np.asarray(getattr(self, name))
            if name in unknown and given.size == 0:
                given = np.full(max(n, 0), unknown[name], dtype=np.int64)
            if given.ndim != 1 or given.shape[0] != n:
                raise ProfileError(
                    f"{name} has the shape {given.shape}; expected ({max(n, 0)},), one entry per block"
                )
            if given.size and given.dtype.kind not in "iu":
                raise ProfileError(f"{name} has the dtype {given.dtype}; expected integers")
            column = given.astype(np.int64)
            column.setflags(write=False)
            object.__setattr__(self, name, column)
        object.__setattr__(self, "period", int(self.period))
        object.__setattr__(self, "sites", tuple(self.sites))
        self._refuse(self.size < 0, "the size {size} is negative; expected 0 or more bytes")
        self._refuse(
            (self.start < 0) | (self.start >= self.period),
            "the start {start} is outside the step; expected 0 up to the period",
        )
        kept = self.end != ESCAPED
        self._refuse(
            kept & (self.end <= self.start), "the lifetime [{start}, {end}) is empty; expected start < end"
        )
        self._refuse(
            kept & (self.end > self.start + self.period),
            "the lifetime [{start}, {end}) is longer than the period",
        )
        self._refuse(
            (self.site < UNKNOWN_SITE) | (self.site >= len(self.sites)),
            f"its call site is not one of the {len(self.sites)}; expected their number, or {UNKNOWN_SITE}",
        )
        site = self.site.astype(np.int32)
        site.setflags(write=False)
        object.__setattr__(self, "site", site)
        if n > 1 and (np.diff(self.start) <= 0).any():
            raise ProfileError("the starts do not rise; expected the order of the requests")

    def _refuse(self, bad: npt.NDArray[np.bool_], message: str) -> None:
        if bad.any():
            i = int(bad.argmax())
            values = {"size": self.size[i], "start": self.start[i], "end": self.end[i]}
            raise ProfileError(f"block {i}: {message.format(**values)} (period {self.period})")

    def __len__(self) -> int:
        return len(self.size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Profile):
            return NotImplemented
        return (self.period, self.sites, self.program) == (other.period, other.sites, other.program) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in (*COLUMNS, *_OPTIONAL)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"<Profile: {len(self)} blocks ({int(self.wrapped.sum())} wrapped, {int(self.escaped.sum())} escaped), "
            f"period {self.period}, planned peak {self.planned_peak} bytes>"
        )

    @property
    def escaped(self) -> npt.NDArray[np.bool_]:
        """Which blocks have escaped, bool (n,)."""
        return np.equal(self.end, ESCAPED)

    @property
    def wrapped(self) -> npt.NDArray[np.bool_]:
        """Which blocks are freed in the following step, bool (n,)."""
        return np.greater_equal(self.end, self.period)

    @property
    def planned(self) -> npt.NDArray[np.bool_]:
        """Which blocks a plan places, bool (n,), which are all but the escaped ones, on the stream of the most bytes.

        Only one stream is planned: between streams nothing is known of the order in which an address is used.
        """
        _, stream = np.unique(self.stream, return_inverse=True)
        main = np.bincount(stream, weights=self.size, minlength=1).argmax()
        return np.equal(stream, main) & ~self.escaped

    def alive_at(self, tick: int) -> npt.NDArray[np.bool_]:
        """Which blocks of the step are alive just after a tick, bool (n,), those of the step before if they wrap."""
        has_begun = self.start <= tick
        return has_begun & ((tick < self.end) | self.escaped) | (tick < self.end - self.period)

    def same_blocks(self, other: Profile) -> bool:
        """Whether both steps request and free the same blocks in the same order, whenever they do it."""
        return self.period == other.period and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("size", "start", "end", "stream")
        )

    @property
    def planned_peak(self) -> int:
        """Most bytes, as requested, that the planned blocks have alive at once."""
        live = self.live_bytes()
        return int(live.max()) if len(live) else 0

    def live_bytes(self) -> IntArray:
        """Bytes of planned blocks alive just after each tick of the circle, int64 (period,)."""
        return self._bytes_of(self.planned)

    def step_bytes(self) -> IntArray:
        """Bytes of all the step's blocks alive just after each tick, int64 (period,), whether planned or not."""
        return self._bytes_of(~self.escaped) + self.escaped_bytes()

    def _bytes_of(self, blocks: npt.NDArray[np.bool_]) -> IntArray:
        delta = np.zeros(self.period, dtype=np.int64)
        np.add.at(delta, self.start[blocks], self.size[blocks])
        np.subtract.at(delta, self.end[blocks] % max(self.period, 1), self.size[blocks])
        return np.cumsum(delta) + int(self.size[blocks & self.wrapped].sum())

    def escaped_bytes(self) -> IntArray:
        """Bytes of escaped blocks alive just after each tick, int64 (period,): what the step adds to what stays."""
        added = np.zeros(self.period, dtype=np.int64)
        added[self.start[self.escaped]] = self.size[self.escaped]
        return np.cumsum(added)

    def unplanned_bytes(self) -> IntArray | None:
        """Bytes of older and escaped blocks at each tick, int64 (period + 1,); None if they were not recorded.

        Older ones are what is left of ``alive``, and follow it from request to request. The last entry is of the moment
        before the first tick, as far as ``Program.before`` knows it.
        """
        if not len(self) or (self.alive < 0).any():
            return None
        own, escaped = self.step_bytes(), self.escaped_bytes()
        # The circle is made of two steps: where a block dies earlier in one of them, there may be nothing left.
        older = np.maximum(self.alive - own[self.start], 0)
        older = older[np.maximum(np.searchsorted(self.start, np.arange(self.period), "right") - 1, 0)]
        before = 0 if self.program is None else self.program.before
        before = max(before - int(own[-1] - escaped[-1]), 0)
        return np.append(older, before) + self.unplanned_step_bytes()

    def unplanned_step_bytes(self) -> IntArray:
        """Bytes of the step's own blocks that are not planned, as `unplanned_bytes` has those of all."""
        own = self.step_bytes() - self.live_bytes()
        return np.append(own, own[-1:] - self.escaped_bytes()[-1:])

    @property
    def unplanned_peak(self) -> int | None:
        """Most bytes of older and escaped blocks alive at once; None if they were not recorded."""
        rest = self.unplanned_bytes()
        return None if rest is None else int(rest.max())

    def older_bytes(self) -> IntArray | None:
        """Bytes of older blocks at each tick, int64 (period,); None if they were not recorded."""
        rest = self.unplanned_bytes()
        return None if rest is None else np.asarray(rest[:-1] - self.escaped_bytes())

    @property
    def live_peak(self) -> int | None:
        """Most bytes that the *program* had alive at once during the step; None if that was not recorded."""
        parts = self.at_live_peak()
        return None if parts is None else parts.older + parts.escaped + parts.planned

    def at_live_peak(self) -> LiveBytes | None:
        """Return what the program has alive at the fullest moment of the step; None if that was not recorded."""
        if not len(self) or (self.alive < 0).any():
            return None
        fullest = int(self.alive.argmax())
        total, tick = int(self.alive[fullest]), int(self.start[fullest])
        if self.program is not None and self.program.before > total:
            wrapped = int(self.live_bytes()[-1])
            return LiveBytes(-1, self.program.before - wrapped, 0, wrapped)
        escaped = min(int(self.escaped_bytes()[tick]), total)
        planned = min(int(self.live_bytes()[tick]), total - escaped)
        return LiveBytes(tick, total - escaped - planned, escaped, planned)

    # ------------------------------------------------------------------------------------------------------- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one versioned file (NumPy's .npz, no pickle), atomically.

        Raises
        ------
        OSError
            The file cannot be written. The old one, if any, is untouched.
        """
        from ..common.archive import write_archive

        columns = {name: getattr(self, name) for name in COLUMNS}
        header: dict[str, Any] = {"period": self.period}
        if self.sites:
            columns["site"], header["sites"] = self.site, self.sites
        if len(self) and (self.alive >= 0).all():
            columns["alive"] = self.alive
        if self.program is not None:
            header["program"] = self.program.as_header()
        write_archive(path, _FORMAT, _VERSION, header, columns)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read what `save` wrote.

        Raises
        ------
        FormatError
            The file is truncated, foreign, of a later version, or its columns contradict each other.
        OSError
            The file cannot be opened.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> from stowplan import Profile
        >>> profile = Profile(size=[300, 200], start=[0, 1], end=[2, 3], period=4)
        >>> with TemporaryDirectory() as folder:
        ...     profile.save(f"{folder}/train.profile")
        ...     Profile.load(f"{folder}/train.profile") == profile
        True
        """
        from ..common.archive import read_archive

        header, columns = read_archive(path, _FORMAT, _VERSION)
        return cls.from_columns(
            path, columns, header.get("period"), header.get("sites", []), header.get("program")
        )

    @classmethod
    def from_columns(
        cls,
        path: str | os.PathLike[str],
        columns: dict[str, npt.NDArray[Any]],
        period: object,
        sites: object = (),
        program: object = None,
    ) -> Profile:
        """Build a profile from the columns of a file.

        Raises
        ------
        FormatError
            A column is missing, or they contradict each other.
        """
        missing = [name for name in COLUMNS if name not in columns]
        if missing or not isinstance(period, int):
            what = f"the column {missing[0]!r} is missing" if missing else f"the period is {period!r}"
            raise FormatError(path, f"{what}; expected a period and the columns {', '.join(COLUMNS)}")
        if not isinstance(sites, (list, tuple)) or not all(isinstance(site, str) for site in sites):
            raise FormatError(path, f"the call sites are {sites!r}; expected a list of strings")
        optional = [name for name in _OPTIONAL if name in columns and (sites or name != "site")]
        try:
            return cls(
                **{name: columns[name] for name in (*COLUMNS, *optional)},
                period=period,
                sites=tuple(sites),
                program=Program.from_header(program),
            )
        except (ProfileError, ValueError, OverflowError) as error:
            raise FormatError(path, str(error)) from None

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the planned blocks in google/minimalloc's format, atomically.

        A wrapped block is alive in ``[0, period)`` except one gap. Ids are request numbers. All other blocks,
        wall-clock times and call sites are left out.
        """
        from .formats.minimalloc_csv import write

        write(path, self)

    def on_line(self, rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Cut the circle at tick 0: the lifetimes of planned blocks on the line ``[0, period)``.

        Parameters
        ----------
        rows
            Numbers of planned blocks, int64 (k,).

        Returns
        -------
        start, end
            Ticks, int64 (k,).
        gaps
            int64 (m, 3): position in ``rows``, start and end of the gap of each wrapped block.
        """
        start, end = self.start[rows], self.end[rows]  # copies
        wrapped = np.flatnonzero(end > self.period)
        gaps = np.column_stack([wrapped, end[wrapped] - self.period, start[wrapped]])
        start[wrapped], end[wrapped] = 0, self.period
        return start, end, gaps[gaps[:, 1] < gaps[:, 2]]

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> Profile:
        r"""Read a problem in google/minimalloc's format as the profile of a step.

        The clock is rebuilt: one tick per allocation and per free, frees before allocations of the same moment. A
        block alive from the first tick to the last with one gap between is read as a wrapped block.

        Raises
        ------
        FormatError
            As ``stowplan.common.minimalloc.read``, or a block has gaps that a profile cannot hold.
        OSError
            The file cannot be opened.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from stowplan import Profile
        >>> with TemporaryDirectory() as folder:
        ...     written = Path(folder, "blocks.csv").write_text("id,lower,upper,size\na,0,7,400\nb,2,5,200\n")
        ...     Profile.from_csv(Path(folder, "blocks.csv"))
        <Profile: 2 blocks (0 wrapped, 0 escaped), period 4, planned peak 600 bytes>
        """
        from .formats.minimalloc_csv import read

        return read(path)


_OPTIONAL = ("site", "alive")
COLUMNS = tuple(f.name for f in fields(Profile) if f.name not in (*_OPTIONAL, "period", "sites", "program"))
"""The columns that every file of profiles has."""
