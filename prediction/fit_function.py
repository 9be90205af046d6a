"""Learn what a function of arrays needs, as formulas of its lengths, from runs in a child process.

::

    1  a first run        which axes and numbers are lengths of their own (`shape_variables.ties`), from which length on
    2  double the lengths until the large blocks of each line have 256 KiB, from which on NumPy computes in place; or
       until a run has many bytes or requests
    3  run it again, and on other values            state, and sizes that depend on data: cannot tell
    4  run the points of the lattice                a formula for each candidate (`size_formulas.Grid`)
    5  run three shapes more, odd and powers of 2   one that misses any is none: once more, at double lengths
    6  run it larger and larger, all lengths together and each alone, up to a tenth of the memory at hand or until the
       seconds are over: where the formulas hold, and whether other memory is taken

The peak at other lengths is that of the moment (`peak_candidates`) that has most alive there. A formula is known for
the lengths that were run, and no more (`larger`): `Model.doubt` says where it was not met, `Model.beyond` how far one
asks.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .child import available, in_child
from .larger import NOT_LARGER, rise
from .model import Model, Tried, is_within
from .peak_candidates import IN_PLACE, below, candidates_of
from .shape_variables import (
    KINDS,
    VARIANTS,
    Axis,
    Lengths,
    arrays,
    axes_of,
    bytes_of,
    name_of,
    on_device,
    ties,
)
from .size_formulas import Grid
from .traced_run import TRACED, Run, run

SECONDS = 10.0
"""Seconds after which learning ends."""
SHARE = 0.1
"""The share of the memory at hand that a run may take; more than that is never run."""
LEAST, LEAST_OF_MANY = 36, 12
"""The shortest of the lengths tried, of up to two and of more; in steps of a third, so that quarters are whole."""
ENOUGH, MOST = 1 << 22, 1 << 27
"""Bytes: of arguments, and of a peak, from which on a lattice's lengths are not doubled."""
MOST_REQUESTS = 1 << 14
"""Requests of a run, from which on a lattice's lengths are not doubled."""
SLIGHT = 100
"""Lines whose blocks are smaller by so many times may be computed in place or not."""
LONGER = 4
"""How many times as long a run of twice the lengths is expected to take."""
LAST = 16
"""Doublings after which a lattice's lengths are long."""
KEPT = 1 << 18
"""Bytes that a first call may keep: of imports."""
MOST_LENGTHS = 5


def learn(
    function: Callable[..., Any],
    examples: Sequence[Any],
    given: Sequence[Any],
    names: Sequence[str],
    vary: frozenset[Axis],
    seconds: float = SECONDS,
    memory: int = 0,
) -> Model:
    """Run a function on arrays like the examples in a child process, and learn its formulas.

    Lengths are the most that the function takes. A function of a device's arrays runs in this process: a child cannot
    use the device.

    Parameters
    ----------
    function, examples, names
        The function, its arguments, and their names.
    given
        Stand-ins for the arguments: short axes are as here, lengths in such proportions.
    vary
        The axes and numbers that vary.
    seconds
        Seconds after which learning ends.
    memory
        Bytes that a run may have alive, if that is less than `SHARE` of the memory at hand; 0: no other limit.
    """
    most, devices = min(available(SHARE)[0], memory or sys.maxsize), any(map(on_device, examples))
    if devices:
        most = min(most, int(SHARE * sys.modules["cupy"].cuda.runtime.memGetInfo()[0]))
    calls = _Calls(function, examples, given, names, seconds, most)
    if devices:
        told: list[Model] = []
        _learned(calls, vary, told.append)
        return told[-1]
    model, why, is_late = in_child(lambda tell: _learned(calls, vary, tell), seconds + 0.5, 4 * most)
    if model is None and is_late:
        return Model(cannot_tell=f"{why}: too slow to learn in {seconds:g} s (learning_seconds)")
    if is_late or not why:
        return model  # type: ignore[no-any-return]
    return replace(model or Model(), cannot_tell=f"{why} when it was run larger")


def _learned(calls: _Calls, vary: frozenset[Axis], tell: Callable[[Model], None]) -> None:
    """Tell what is learned of some calls, and again when more is known."""
    why, calls.tell = "", tell
    for kind, lengths in itertools.product(KINDS, ties(calls.given, vary)):
        if len(lengths.axes) > MOST_LENGTHS:
            why = why or f"{len(lengths.axes)} lengths vary; expected at most {MOST_LENGTHS}"
            continue
        try:
            trial, model = Trial(calls, lengths, kind).model()
        except _OutOfTimeError as slow:
            why = str(slow)
            break
        except Exception as error:  # any: it is the user's function
            why = f"it fails on small arrays ({type(error).__name__}: {error})"
            continue
        calls.tell = bool
        tell(calls.noted(replace(model, cannot_tell=model.cannot_tell or NOT_LARGER)))
        if not model.cannot_tell:
            rise(trial, model, tell)
        return
    tell(calls.noted(Model(cannot_tell=why)))


class _OutOfTimeError(Exception):
    """Learning has taken longer than it may."""


@dataclass
class _Calls:
    """The calls that one `learn` makes: how many, and the time that they have taken and may take."""

    function: Callable[..., Any]
    examples: Sequence[Any]
    given: Sequence[Any]
    names: Sequence[str]
    seconds: float
    memory: int
    runs: int = 0
    took: float = 0.0  # seconds, the last of them
    enough: float = 0.0  # bytes of a run in which NumPy computes all in place that matters
    began: float = field(default_factory=time.monotonic)
    tell: Callable[[Model], object] = bool  # before each run, until there are formulas

    @property
    def spent(self) -> float:
        """Seconds since learning began."""
        return time.monotonic() - self.began

    def noted(self, model: Model) -> Model:
        """Return a model with what it has taken; without formulas if they are of arrays too short for NumPy's way."""
        if model.candidates and all(one.given + one.live < self.enough for one in model.met):
            model = replace(model, candidates=(), cannot_tell=self.slow())
        return replace(model, runs=self.runs, seconds=self.spent)

    def slow(self) -> str:
        """Say that learning takes longer than it may."""
        slow = f"{self.runs} runs took {self.spent:.2g} s: too slow to learn in {self.seconds:g} s"
        return f"{slow} (learning_seconds)"

    def has_time_for(self, runs: int) -> bool:
        """Whether there is time for so many runs of twice the lengths of the last one."""
        return self.spent + LONGER * self.took * runs <= self.seconds

    def run(self, wanted: Sequence[Any], kind: str, times: int, outside: bool) -> list[Run]:
        if self.spent > self.seconds:
            raise _OutOfTimeError(self.slow())
        self.tell(self.noted(Model(cannot_tell=self.slow())))
        arguments = arrays(self.examples, wanted, kind, self.runs)
        began = time.monotonic()
        found = run(self.function, arguments, times, sites=not outside, outside=outside)
        self.runs += times
        self.took = (time.monotonic() - began) / times
        return found


@dataclass(frozen=True)
class Trial:
    """The function on arrays: which axes are its lengths, values of a kind, and the calls until a run counts."""

    calls: _Calls
    lengths: Lengths
    kind: str
    repeats: int = 1
    start: int = 0
    larger: str = ""
    """The kind of values of larger runs, if it is another one."""

    def model(self) -> tuple[Trial, Model]:
        """Learn the formulas of the lengths; return how it is to be run larger, too."""
        start, kept = self.begun()
        doublings, found = self.climbed(start)
        steady, why = self.steadied(self.grid(doublings).base, found)
        model = steady.sampled(doublings, once=bool(why))
        return replace(steady, start=start), replace(model, cannot_tell=why or kept or model.cannot_tell)

    def run(self, lengths: Sequence[int], times: int = 0, outside: bool = False) -> list[Run]:
        """Run the function at some lengths."""
        kind = (outside and self.larger) or self.kind
        return self.calls.run(self.arguments(lengths), kind, times or self.repeats, outside)

    def tried(self, lengths: Sequence[int], outside: bool = False) -> Run | None:
        """Run it on values that the function may reject; None if it does."""
        try:
            return self.run(lengths, outside=outside)[-1]
        except (_OutOfTimeError, MemoryError):
            raise
        except Exception:  # any: it is the user's function
            return None

    def arguments(self, lengths: Sequence[int]) -> list[Any]:
        """Return what stands for its arguments at some lengths."""
        return self.lengths.stand_ins(self.calls.given, lengths)

    def grid(self, doublings: int) -> Grid:
        """Return the lattice at lengths that are doubled so often."""
        weights = self.lengths.weight
        third = (LEAST if len(weights) < 3 else LEAST_OF_MANY) // 3 << doublings
        base = tuple((3 * weight + n) * third for n, weight in enumerate(weights))
        step = tuple(weight * third for weight in weights)
        return Grid(base, step, 3 if len(step) < 4 else 2)

    def begun(self) -> tuple[int, str]:
        """Double the lengths until the function takes them, up to the example's; and tell what its first call keeps."""
        axes = axes_of(self.calls.given)
        longest = [max(axes.get(axis, 0) for axis in group) for group in self.lengths.axes]
        for doublings in itertools.count():
            base = self.grid(doublings).base
            try:
                cold, warm = self.run(base)[-1], self.run(base)[-1]
            except (_OutOfTimeError, MemoryError):
                raise
            except Exception:  # any: it is the user's function
                if is_within(longest, base):
                    raise
                continue
            kept = cold.most - warm.most
            return doublings, "" if kept < KEPT else f"its first call needs {kept:,} bytes more than the next"
        raise AssertionError

    def climbed(self, doublings: int) -> tuple[int, Run]:
        """Double the lengths until NumPy computes in place, or a run is large; return how often, and the last run."""
        before = dict[str, int]()
        most = min(MOST, self.calls.memory // 8)
        while True:
            lengths = self.grid(doublings).base
            found = self.run(lengths)[-1]
            blocks = found.blocks()
            large = max(blocks.values(), default=0) // 8
            growing = [n for line, n in blocks.items() if n >= large and n > before.get(line, 0)]
            in_place = found.peak >= IN_PLACE and min(growing, default=found.peak) > IN_PLACE * 5 // 4
            is_large = found.peak >= most or bytes_of(self.arguments(lengths)) >= min(ENOUGH, most)
            far = not lengths or doublings >= LAST or len(found.profile) >= MOST_REQUESTS
            far = far or not self.calls.has_time_for(len(self.grid(doublings).steps) + 3)
            if in_place or is_large or far:
                slight = max(blocks.values(), default=0) // SLIGHT
                growing = [n for line, n in blocks.items() if n >= slight and n > before.get(line, 0)]
                size = bytes_of(self.arguments(lengths)) + found.peak
                self.calls.enough = min(size / min(growing), SLIGHT) * IN_PLACE * 5 // 4 if growing else 0
                return doublings, found
            doublings, before = doublings + 1, blocks

    def steadied(self, lengths: Sequence[int], found: Run) -> tuple[Trial, str]:
        """Run it again on equal and on other values; return how to run it, and why its formulas would not hold."""
        if found.lazy:
            return self, "it returns an iterator or a coroutine, whose work is still to be done"
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
            if kind == "tiled" and other and self.kind == KINDS[0]:
                steady = replace(steady, larger=kind)
            peak = other.peak if other else peaks[-1]
            if abs(peak - peaks[-1]) > slight + peaks[-1] // 256:
                why = f"its bytes depend on the values: {peaks[-1]:,}, and {peak:,} of {kind} ones"
                return variant if peak < peaks[-1] else steady, why  # the bytes that it is sure of
        if steady.larger:  # where each value has an object, larger runs have one in each place
            few, many = (replace(steady, larger=kind).tried(lengths, True) for kind in ("tiled", "distinct"))
            if few and many and many.traced - many.most > few.traced - few.most + TRACED:
                steady = replace(steady, larger="distinct")
        if found.others:
            return steady, "other threads ask for memory, and how much of it at once is a matter of chance"
        return steady, ""

    def sampled(self, doublings: int, once: bool) -> Model:
        """Learn from a lattice and its checks, at double lengths while a formula misses one, unless only ``once``."""
        grid = self.grid(doublings)
        most = min(MOST, self.calls.memory // 8)
        checks = _checks(grid)
        runs = [self.run(point)[-1] for point in [*grid.points, *checks]]
        candidates, missed = candidates_of(grid, runs, checks)
        given = [bytes_of(self.arguments(point)) for point in [*grid.points, *checks]]
        is_small = max(runs[-1].peak, given[-1]) < most and len(runs[-1].profile) < 4 * MOST_REQUESTS
        if missed and is_small and not once and self.calls.has_time_for(len(runs)):
            return self.sampled(doublings + 1, once)  # blocks may have been below 256 KiB, and others above
        return Model(
            self.lengths,
            tuple(name_of(self.calls.names, axes[0]) for axes in self.lengths.axes),
            candidates,
            below([*grid.points, *checks]),
            grid.base,
            given[0],
            (Tried(checks[-1], given[-1], runs[-1].peak),),
            cannot_tell=missed,
        )


def _checks(grid: Grid) -> list[tuple[int, ...]]:
    """Return shapes that no formula was made of: one between, powers of two, and one further out.

    The lattice has even lengths, and no powers of two; the first and the last of these have odd ones.
    """
    pairs = list(enumerate(zip(grid.base, grid.step, strict=True)))
    between = tuple(base + step + step // 2 + 5 - 2 * n for n, (base, step) in pairs)
    powers = tuple(1 << base.bit_length() + n % 2 for n, base in enumerate(grid.base))
    out = tuple((4 if len(pairs) == 1 else 2) * base + step + 1 + 2 * n for n, (base, step) in pairs)
    return [between, powers, out]
