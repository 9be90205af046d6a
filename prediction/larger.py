"""Run a function larger and larger: where its formulas hold, and whether it takes memory that no array has.

::

    x[1]
      |   |              a direction for all lengths together, and one for each alone:
      |   |        /     runs of twice the bytes, or 1.4 times as long as they are small
      |   |     /
      |   |  /
      |   :- - - - -     in turn, so that all are as far when the seconds are over
      +------------ x[0]

A direction ends at a run that does not meet the formulas, before one that would take more memory or time than is left,
or where the function fails twice. Lengths are odd, powers of two, round and even ones in turn. A run's memory is
compared with what tracemalloc and the resident set tell (`traced_run.Run.unseen`); the last of each direction counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .model import Model, Tried
from .peak_candidates import PAGE, below
from .shape_variables import bytes_of

if TYPE_CHECKING:
    from .fit_function import Trial

DENSE = 1 << 25
"""Bytes of a run, up to which there are two for each doubling."""
MOST_REQUESTS = 1 << 16
"""Requests of a run, from which on it is not run larger."""
TOGETHER, ALONE = 100, 50
"""By what share of the whole peak formulas may be off: an n-th, of all lengths together, and of one much longer."""
NOT_LARGER = (
    "the seconds, or the bytes, that learning may take did not suffice for a larger run (learning_seconds)"
)
KEPT = 1 << 26
"""Bytes that libraries may keep for their next calls: buffers of BLAS, of each thread."""
LAST = 40
"""Doublings after which a length ends that needs no memory."""


@dataclass
class _Direction:
    """Lengths that grow together, from the smallest on; and what came of the last run."""

    growing: tuple[int, ...]
    base: tuple[int, ...]
    octaves: float = 0.0
    count: int = 0
    total: int = 0
    seconds: float = 0.0
    requests: int = 0
    kept: int = 0
    unseen: str = ""
    failed: Tried | None = None
    last: Tried | None = None

    def lengths(self) -> tuple[int, ...]:
        """Return the next lengths."""
        factor = 2 ** (self.octaves / max(len(self.growing), 1))
        pairs = enumerate(self.base)
        return tuple(
            max(n, _as(self.count % 4, int(n * factor))) if k in self.growing else n for k, n in pairs
        )


def _as(kind: int, n: int) -> int:
    if kind == 2:
        return round(n, 1 - len(str(n)))
    return (n | 1, 1 << round(math.log2(n)), 0, n & -2)[kind]


def rise(trial: Trial, model: Model, tell: Callable[[Model], None]) -> None:
    """Run a function larger in each direction, and tell the model with what was found after each run."""
    least, calls = _total(trial, model, model.base), trial.calls
    count = range(len(model.names))
    together = tuple(k for k in count if not trial.lengths.is_number(k))
    small = tuple(2 * n for n in trial.grid(trial.start).base)
    together = together or tuple(count)[:1]
    ways = [_Direction(together, model.base), *(_Direction((k,), small) for k in count if (k,) != together)]
    rising, points = list(ways), [one.lengths for one in model.met]
    while rising:
        for way in list(rising):
            while (total := _total(trial, model, lengths := way.lengths())) < least and way.octaves < LAST:
                way.octaves += 0.5
            later = way.seconds * total / max(way.total, 1)
            more = max(total, bytes_of(trial.arguments(lengths))) <= calls.memory
            more = more and calls.spent + later <= calls.seconds and way.requests <= MOST_REQUESTS
            if not more or way.octaves >= LAST or (way.count and not way.growing):
                rising.remove(way)
            elif (tried := _risen(trial, way, lengths)).live < 0 and not way.failed:
                way.failed = tried
            elif tried.live < 0 or not _meets(model, way, tried):
                rising.remove(way)
                way.unseen = ""
                if all(lengths[i] < lengths[j] for i, j in model.below):  # or else the order explains it
                    model = replace(model, missed=(*model.missed, way.failed or tried))
            else:
                way.last, way.failed = tried, None
                points.append(lengths)
            way.octaves += 0.5 if total < DENSE else 1
            way.count += 1
            way.total = total
            met = (model.met[0], *(one.last for one in ways if one.last))
            model = replace(model, met=met, below=tuple(one for one in model.below if one in below(points)))
            beside = [(one.growing[0], one.last) for one in ways[1:] if one.unseen and one.last]
            model = replace(model, beside=tuple(beside))
            unseen = ways[0].unseen if ways[0].last or model.missed else NOT_LARGER
            tell(calls.noted(replace(model, cannot_tell=unseen)))


def _total(trial: Trial, model: Model, lengths: Sequence[int]) -> int:
    """Return the bytes that a run has alive by the formulas, its arguments included."""
    return bytes_of(trial.arguments(lengths)) + model.fullest(lengths).at(lengths)[0]


def _risen(trial: Trial, way: _Direction, lengths: tuple[int, ...]) -> Tried:
    """Run a function at some lengths; return what it had alive."""
    given, began = bytes_of(trial.arguments(lengths)), trial.calls.spent
    try:
        found = trial.run(lengths, outside=True)[-1]
    except Exception as error:  # any: it is the user's function
        return Tried(lengths, given, -1, f"it fails ({type(error).__name__}: {error})")
    way.seconds, way.requests = trial.calls.spent - began, len(found.profile)
    way.unseen = found.unseen(most := given + found.most)
    if way.unseen and found.traced - found.most < most // 100:
        way.kept += found.beside  # does a library keep it for its next calls?
        with suppress(Exception):  # or what the first run has shown counts
            again = trial.run(lengths, outside=True)[-1]
            way.unseen = again.unseen(most) or (way.unseen if way.kept > KEPT else "")
    return Tried(lengths, given, found.most, way.unseen, found.beside)


def _meets(model: Model, way: _Direction, tried: Tried) -> bool:
    fullest = model.fullest(tried.lengths)
    said = fullest.at(tried.lengths)[0]
    rounding = said - max(int(fullest.formulas.at(tried.lengths)[0]), 0)
    slack = (tried.given + said) // (TOGETHER if len(way.growing) > 1 or len(way.base) == 1 else ALONE) + PAGE
    return said - 2 * rounding - slack <= tried.live <= said + slack
