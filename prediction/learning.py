"""Learn what a function of arrays needs, as laws of its lengths, from runs on small arrays.

::

    1  a first run        which axes are lengths of their own (`arguments.ties`)
    2  double the lengths until the large blocks of each line have 256 KiB, from which on NumPy computes in place; or
       until a run has many bytes or requests
    3  run it again, and on other values            state, and sizes that depend on data: cannot tell
    4  run the points of the lattice                a law for each *moment* (`laws.Grid`)
    5  run three shapes more, odd and powers of 2   a law that misses one of them is none: once more, at double lengths
    6  run it long in one length                    where blocks below 256 KiB are above: whether laws hold there

The peak at other lengths is that of the moment (`moments`) that has most alive there.

Counts alone decide what runs: bytes and requests. If that takes longer than it may, the clock ends it, and it cannot
tell. Blocks that were below 256 KiB in all runs, and would not be at the lengths that are requested, it cannot tell.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..units import human_bytes
from .arguments import KINDS, VARIANTS, Axis, Lengths, arrays, bytes_of, sizes, ties
from .laws import Grid, Laws
from .moments import IN_PLACE, NOTHING, PAGE, Moment, moments_of, small_blocks
from .runs import Run, run

__all__ = ["SECONDS", "Model", "learn"]

SECONDS = 10.0
"""Seconds after which learning is given up."""
LEAST, LEAST_OF_MANY = 36, 12
"""The shortest of the lengths tried, of up to two and of more; in steps of a third, so that quarters are whole."""
ENOUGH, MOST = 1 << 20, 1 << 25
"""Bytes: of arguments, and of a peak, from which on lengths are not doubled."""
MOST_REQUESTS = 1 << 14
"""Requests of a run, from which on lengths are not doubled."""
MOST_LENGTHS = 5
NO_LENGTHS = Lengths((), ())


@dataclass(frozen=True, eq=False)
class Model:
    """What a function needs as a function of lengths: all that may be the fullest moment. Made by `learn`.

    With a reason in ``cannot_tell`` the moments are those that follow a law, maybe none.
    """

    lengths: Lengths = NO_LENGTHS
    names: tuple[str, ...] = ()
    moments: tuple[Moment, ...] = ()
    below: tuple[tuple[int, int], ...] = ()
    """Pairs of lengths: the first was the smaller one in all runs."""
    least_bytes: int = 0
    """Bytes of the arguments, in the smallest run on which laws are."""
    largest: tuple[int, ...] = (0, 0, 0)
    """The most elements, bytes and longest axis of an argument in any run."""
    small: tuple[str, ...] = ()
    """Lines whose blocks were below `IN_PLACE` in all runs."""
    largest_blocks: Laws = field(default_factory=lambda: Laws((), np.zeros((0, 0), dtype=object)))
    """The laws of these lines."""
    only_equal: bool = False
    """Whether the function follows a law only where the axes of a length are equal, and takes others."""
    runs: int = 0
    seconds: float = 0.0
    cannot_tell: str = ""

    @classmethod
    def read(cls, kept: dict[str, Any]) -> Model:
        """Return a model that was kept as JSON."""
        found = {name: _tuples(value) for name, value in kept.items()}
        moments = tuple(Moment(_laws(laws), lines, rounds) for laws, lines, rounds in found.pop("moments"))
        lengths, blocks = Lengths(**found.pop("lengths")), _laws(found.pop("largest_blocks"))
        return cls(lengths=lengths, moments=moments, largest_blocks=blocks, **found)

    def fullest(self, lengths: Sequence[int]) -> Moment:
        """Return the moment with most bytes alive at some lengths."""
        return max(self.moments, key=lambda moment: moment.at(lengths)[0], default=NOTHING)

    def in_place(self, lengths: Sequence[int], least: int) -> list[str]:
        """Return the lines in which NumPy may compute in place at some lengths, and did not in any run.

        Lines whose largest block has fewer bytes than ``least`` are left out.
        """
        sizes = self.largest_blocks.at(lengths).tolist()
        return [line for line, size in zip(self.small, sizes, strict=True) if size >= max(IN_PLACE, least)]


def _laws(kept: dict[str, Any]) -> Laws:
    rows = np.array(kept["factors"], dtype=object).reshape(-1, len(kept["powers"]))
    return Laws(kept["powers"], rows, kept["below"])


def _tuples(value: Any) -> Any:
    """Return a value of JSON with tuples for its lists."""
    if isinstance(value, dict):
        return {name: _tuples(one) for name, one in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def learn(
    function: Callable[..., Any],
    examples: Sequence[Any],
    options: Mapping[str, Any],
    names: Sequence[str],
    vary: frozenset[Axis],
    seconds: float = SECONDS,
) -> Model:
    """Run a function on small arrays like the examples some 20 times, and learn its laws.

    Lengths are the most that the function takes; or fewer, if only then it follows a law.

    Parameters
    ----------
    function, examples, options, names
        The function, its arguments and keywords, and the names of the arguments.
    vary
        The axes that vary.
    seconds
        Seconds after which learning is given up.
    """
    calls = _Calls(function, examples, options, names, seconds)
    why, lawless = "", Model()
    for kind in KINDS:
        for lengths in ties(examples, vary):
            if len(lengths.axes) > MOST_LENGTHS:
                why = why or f"{len(lengths.axes)} lengths vary; expected at most {MOST_LENGTHS}"
                continue
            try:
                model, missed = _Trial(calls, lengths, kind).model()
            except _OutOfTimeError as slow:
                lawless = replace(lawless, cannot_tell=lawless.cannot_tell or str(slow))
                break
            except Exception as error:  # any: it is the user's function
                why = f"it fails on small arrays ({type(error).__name__}: {error})"
                continue
            if not missed and not (lawless.cannot_tell and model.cannot_tell):
                only_equal = bool(lawless.cannot_tell)
                return replace(model, only_equal=only_equal, runs=calls.runs, seconds=calls.spent)
            lawless = lawless if lawless.cannot_tell else model
        if lawless.cannot_tell:
            break
    return replace(lawless, runs=calls.runs, seconds=calls.spent, cannot_tell=lawless.cannot_tell or why)


class _OutOfTimeError(Exception):
    """Learning has taken longer than it may."""


@dataclass
class _Calls:
    """The calls that one `learn` makes: how many, and the time that they have taken and may take."""

    function: Callable[..., Any]
    examples: Sequence[Any]
    options: Mapping[str, Any]
    names: Sequence[str]
    seconds: float
    runs: int = 0
    began: float = math.inf

    @property
    def spent(self) -> float:
        """Seconds since the first run, which imports and compiles; without those in which other programs ran."""
        return max(_clock() - self.began, 0.0)

    def run(self, wanted: Sequence[Any], kind: str, times: int, trim: bool) -> list[Run]:
        if self.spent > self.seconds:
            slow = f"{self.runs} runs took {self.spent:.2g} s: too slow to learn in {self.seconds:g} s"
            raise _OutOfTimeError(f"{slow} (learning_seconds)")
        arguments = arrays(self.examples, wanted, kind, self.runs)
        found = run(self.function, arguments, self.options, times, trim=trim)
        self.runs += times
        self.began = min(self.began, _clock())
        return found


@dataclass(frozen=True)
class _Trial:
    """The function on small arrays: which axes are its lengths, values of a kind, and the calls until a run counts."""

    calls: _Calls
    lengths: Lengths
    kind: str
    repeats: int = 1

    def model(self) -> tuple[Model, bool]:
        """Learn the laws of the lengths; and tell whether nothing but a shape that meets none is in the way."""
        doublings, found = self.climbed()
        steady, why = self.steadied(self.grid(doublings).base, found)
        model, unseen = steady.sampled(doublings, once=bool(why))
        if why or unseen:
            return replace(model, cannot_tell=why or unseen), False
        return (model, True) if model.cannot_tell else (steady.stretched(model), False)

    def run(self, lengths: Sequence[int], times: int = 0, trim: bool = False) -> list[Run]:
        return self.calls.run(self.arguments(lengths), self.kind, times or self.repeats, trim)

    def tried(self, lengths: Sequence[int]) -> Run | None:
        """Run it on values, or at lengths, that the function may reject; None if it does."""
        try:
            return self.run(lengths)[-1]
        except _OutOfTimeError:
            raise
        except Exception:  # any: it is the user's function
            return None

    def arguments(self, lengths: Sequence[int]) -> list[Any]:
        return self.lengths.stand_ins(self.calls.examples, lengths)

    def grid(self, doublings: int) -> Grid:
        weights = self.lengths.weight
        third = (LEAST if len(weights) < 3 else LEAST_OF_MANY) // 3 << doublings
        base = tuple((3 * weight + n) * third for n, weight in enumerate(weights))
        step = tuple(weight * third for weight in weights)
        return Grid(base, step, 3 if len(step) < 4 else 2)

    def climbed(self) -> tuple[int, Run]:
        """Double the lengths until NumPy computes in place, or a run is large; return how often, and the last run."""
        self.run(self.grid(0).base)  # it imports and compiles
        doublings, before = 0, dict[str, int]()
        while True:
            lengths = self.grid(doublings).base
            found = self.run(lengths)[-1]
            blocks = found.blocks()
            growing = [n for line, n in blocks.items() if n * 8 >= found.peak and n > before.get(line, 0)]
            in_place = found.peak >= IN_PLACE and min(growing, default=found.peak) > IN_PLACE * 5 // 4
            is_large = found.peak >= MOST or bytes_of(self.arguments(lengths)) >= 4 * ENOUGH
            if in_place or is_large or len(found.profile) >= MOST_REQUESTS or not lengths:
                return doublings, found
            doublings, before = doublings + 1, blocks

    def steadied(self, lengths: Sequence[int], found: Run) -> tuple[_Trial, str]:
        """Run it again on equal and on other values; return how it is to be run, and why its laws would not hold."""
        if found.lazy:
            return self, "it returns an iterator, whose work is still to be done"
        slight, steady = bytes_of(self.arguments(lengths)) // 256, self
        peaks = [one.peak for one in self.run(lengths, times=2)]
        if peaks[0] != peaks[1]:
            peaks = [one.peak for one in self.run(lengths, times=4)]
            if peaks[-1] != peaks[-2]:
                return self, "equal calls need different bytes: it keeps some, or threads overlap"
            steady = replace(self, repeats=2)
        for kind in VARIANTS:
            variant = replace(steady, kind=kind)
            other = variant.tried(lengths)
            peak = other.peak if other else peaks[-1]
            if abs(peak - peaks[-1]) > slight + peaks[-1] // 256:
                why = f"its bytes depend on the values: {peaks[-1]:,}, and {peak:,} of {kind} ones"
                return variant if peak < peaks[-1] else steady, why  # the bytes that it is sure of
        if found.others:
            return steady, "other threads ask for memory, and how much of it at once is a matter of chance"
        return steady, ""

    def sampled(self, doublings: int, once: bool) -> tuple[Model, str]:
        """Learn from a lattice and its checks, at double lengths again while a law misses one, unless only ``once``.

        Return the model, which tells what misses a check, and what no run can see.
        """
        grid = self.grid(doublings)
        runs = [self.run(point)[-1] for point in grid.points]
        checks = _checks(grid, runs)
        runs += [self.run(point, trim=point == checks[-1])[-1] for point in checks]
        moments, missed = moments_of(grid, runs, checks)
        points, count = [*grid.points, *checks], range(len(grid.base))
        given = bytes_of(self.arguments(points[-1]))
        more = checks and max(runs[-1].peak, given) < MOST and len(runs[-1].profile) < 4 * MOST_REQUESTS
        if missed and more and not once:  # some blocks may have been below 256 KiB, and some above
            return self.sampled(doublings + 1, once)
        return Model(
            self.lengths,
            tuple(f"{self.calls.names[axes[0][0]]}[{axes[0][1]}]" for axes in self.lengths.axes),
            moments,
            tuple((i, j) for i in count for j in count if all(point[i] < point[j] for point in points)),
            bytes_of(self.arguments(grid.base)),
            sizes([value for point in points for value in self.arguments(point)]),
            *small_blocks(grid, runs),
            cannot_tell=missed,
        ), _unseen(runs[-1], given)

    def stretched(self, model: Model) -> Model:
        """Run shapes long in one length, at which a line's small blocks are large: seen, if the laws hold there."""
        seen = set[str]()
        for n in range(len(model.names) if model.small else 0):
            lengths, blocks = list(self.grid(0).base), model.largest_blocks
            while (
                (most := model.fullest(lengths).at(lengths)[0]) <= MOST >= bytes_of(self.arguments(lengths))
            ):
                if max(blocks.at(lengths).tolist()) > IN_PLACE * 5 // 4:
                    found = self.tried(lengths)
                    if found and 0 <= most - found.peak <= 2 * PAGE:
                        seen |= {line for line, size in found.blocks().items() if size >= IN_PLACE}
                    break
                lengths[n] *= 2
        rows = [row for row, line in enumerate(model.small) if line not in seen]
        blocks = replace(model.largest_blocks, factors=model.largest_blocks.factors[rows])
        return replace(model, small=tuple(model.small[row] for row in rows), largest_blocks=blocks)


def _checks(grid: Grid, runs: list[Run]) -> list[tuple[int, ...]]:
    """Return shapes that no law was made of: one between, powers of two, and one far out.

    The lattice has even lengths, and no powers of two; the first and the last of these have odd ones.
    """
    pairs = list(enumerate(zip(grid.base, grid.step, strict=True)))
    if not pairs:
        return []
    peak = grid.fit([[one.peak for one in runs]])
    between = tuple(base + step + step // 2 + 5 - 2 * n for n, (base, step) in pairs)
    powers = tuple(1 << base.bit_length() + n % 2 for n, base in enumerate(grid.base))
    outs = [tuple(far * base + 1 + 2 * n for n, (base, _) in pairs) for far in (4, 3)]
    near = tuple(2 * base + step + 1 + 2 * n for n, (base, step) in pairs)
    out = next((out for out in outs if int(peak.at(out)[0]) <= 4 * MOST), near)
    return [between, powers, out]


def _clock() -> float:
    """Return seconds, without those that this thread was ready to run and others ran, where Linux tells these."""
    queued = 0
    with suppress(OSError, ValueError, IndexError):
        queued = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    return time.perf_counter() - queued / 1e9


def _unseen(found: Run, given: int) -> str:
    """Return a note that much memory is taken besides the arrays that the recorder sees, if it is."""
    if found.foreign:
        return "its result lies in memory that NumPy has not allocated, which is not seen"
    counted = int(found.profile.size.sum())
    # A page of zeros that is read and then written counts twice.
    if found.touched - 2 * counted <= max(ENOUGH // 2, (given + found.peak) // 64):
        return ""
    return (
        f"its largest run touched {human_bytes(found.touched)} of fresh memory, and all arrays that it allocated have "
        f"{human_bytes(counted)}: a C library takes the rest (LAPACK's workspaces are such), which is not counted"
    )
