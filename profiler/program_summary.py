"""The program around a step: how much of it the step is, and the most that it had alive.

::

    requests   . . . [a b c d] [a b c d] x x x [a b c d] [a b e] . .   . and x: of no step; x: of other threads
                     four steps; three of them are repeats of one

*Coverage* is the share of all requests, and of all bytes, that lie in steps. Only requests that the recorder
saw count, from the size on that it was told to record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple


class Holder(NamedTuple):
    """What one call site held at the fullest moment of the program.

    Attributes
    ----------
    site
        As in ``Profile.sites``; empty where it was not recorded.
    blocks
        How many blocks were live then.
    bytes
        How many bytes were live then.
    """

    site: str
    blocks: int
    bytes: int


@dataclass(frozen=True)
class Program:
    """Counts of the whole recording that a profile comes from.

    Attributes
    ----------
    library
        Whose requests: ``"NumPy"``, ``"CuPy"``, ``"PyTorch"`` (its tensors in host memory), ``"PyTorch on CUDA"``,
        ``"RMM"``.
    small
        Requests below this many bytes were not recorded.
    requests
        How many requests were recorded.
    bytes
        The bytes of these.
    live_peak
        The most bytes that were live at once.
    steps
        Steps found or marked, and finished.
    repeats
        Those of them that requested what the profile's step requests.
    step_requests
        How many requests lie in steps.
    step_bytes
        The bytes of these.
    other_requests
        How many requests came from other threads. These lie in no step.
    other_bytes
        The bytes of these.
    turns
        Steps that the profile covers: more than 1 if the loop rotates its arrays. ``repeats`` counts single steps.
    threads
        Whether the requests of other threads were seen.
    reserved
        The most bytes that the library's own pool had reserved; 0 where that is not known.
    before
        Bytes alive when a trace that is read as one step began; 0 where that is not known.
    failed
        Requests of a log that its pool refused, which are not among ``requests``.
    wanted
        The most bytes that would have been live with one of these.
    refused
        The bytes of that one.
    holders
        What held ``live_peak``, at the first of its moments, the most bytes first; empty where that was not recorded.

    Examples
    --------
    A profile that a recorder made has one as ``profile.program``. If a tenth of the bytes lies in no step:

    >>> from stowplan.profiler.program_summary import Program
    >>> program = Program(requests=50, bytes=2000, step_requests=40, step_bytes=1800)
    >>> program.coverage
    (0.8, 0.9)
    """

    library: str = ""
    small: int = 0
    requests: int = 0
    bytes: int = 0
    live_peak: int = 0
    steps: int = 0
    repeats: int = 0
    step_requests: int = 0
    step_bytes: int = 0
    other_requests: int = 0
    other_bytes: int = 0
    turns: int = 1
    threads: bool = False
    reserved: int = 0
    before: int = 0
    failed: int = 0
    wanted: int = 0
    refused: int = 0
    holders: tuple[Holder, ...] = ()

    @property
    def coverage(self) -> tuple[float, float]:
        """Shares of the requests, and of the bytes, that lie in steps; zeros where nothing was requested."""
        return self.step_requests / max(self.requests, 1), self.step_bytes / max(self.bytes, 1)

    @property
    def is_log(self) -> bool:
        """Whether the profile is another tool's whole log, which is read as one step."""
        return self.library in ("RMM", "PyTorch on CUDA")

    def as_header(self) -> dict[str, Any]:
        """Return what `from_header` reads."""
        return asdict(self)

    @classmethod
    def from_header(cls, header: object) -> Program | None:
        """Read the counts of a file; None where it has none.

        Raises
        ------
        ValueError
            They are damaged. Counts that this version does not know are left out.
        """
        if header is None:
            return None
        if not isinstance(header, Mapping):
            raise ValueError(f"the program's counts are {header!r}; expected a mapping")
        known: dict[str, Any] = {}
        for field in fields(cls):
            if field.name in header:
                value, default = header[field.name], field.default
                if field.name == "holders":
                    known["holders"] = _holders(value)
                    continue
                if type(value) is not type(default) or (type(value) is int and value < 0):
                    raise ValueError(
                        f"the program's {field.name} is {value!r}; expected one like {default!r}"
                    )
                known[field.name] = value
        return cls(**known)


def _holders(rows: object) -> tuple[Holder, ...]:
    """Read the rows of a file."""
    kinds = [str, int, int]
    if not isinstance(rows, (list, tuple)) or any(
        not isinstance(row, (list, tuple)) or [type(cell) for cell in row] != kinds or min(row[1:]) < 0
        for row in rows
    ):
        raise ValueError(f"the program's holders are {rows!r}; expected rows of a site, blocks and bytes")
    return tuple(Holder(*row) for row in rows)
