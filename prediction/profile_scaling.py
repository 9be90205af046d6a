"""From the profiles of a step at a few batch sizes to its profile at any other, and the largest batch that fits.

A batch changes how large blocks are, and nothing else: activations grow with it, parameters and their gradients do not.
So the size of each block follows a formula of the batch, and so do the bytes of older blocks at each request::

    bytes
      |                     . x    the formula: a power of the batch, 0 to 3, if it meets all profiles to the byte;
      |            . '             or else the line through the smallest and the largest batch
      |      o . '                 o: a profile between them checks it. What is d bytes off the line there may have a
      | . x                        square in it, and is d (n - low) (n - high) / ((between - low) (high - between)) off
      +-----------------> batch    at n: the formula's *uncertainty*

A power that only two profiles have met may be one higher. Any other block that some profiles do not ask for grows in
proportion, and may grow with the cube. Uncertain bytes count like others; where they are more than ``MOST_UNCERTAIN``
of all, nothing can be told, nor from two profiles, which check no formula. Lifetimes, streams and call sites are those
of the largest batch.

O(blocks * profiles), and O(blocks) for each prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..common.errors import ProfileError
from ..common.units import counted, human_bytes
from ..packing import lower_bound
from ..planning import Plan, make_plan, problem_of
from ..profiler import Profile
from ..profiler.profile import UNKNOWN_NS, LiveBytes
from ..profiler.sequence_matching import match_sequences
from .prediction import EXTRAPOLATED, Peak, Prediction, last_that
from .traced_run import alive_at

IntArray = npt.NDArray[np.int64]

MOST_DIFFERENT = 0.02
"""Share of requests that may have no counterpart in the profile of another batch."""
MOST_UNCERTAIN = 0.03
"""Share of the bytes that may be uncertain."""
TOLERANCE = 0.005
"""Share by which the live peak of a batch between may be off."""
MOST_POWER = 3
_MOST_BYTES, _MOST_BATCH = 1 << 62, 1 << 32


@dataclass(frozen=True, eq=False)
class _Formulas:
    """Formulas of some quantities, ``(constant + factor * batch**power) / below``, rounded up, in whole numbers.

    Attributes
    ----------
    bend
        What a square of the batch may add to each, float64 (n,).
    loose, most
        Each at the largest batch if nothing checks its formula, else 0; and the power that it may grow with, float64
        (n,).
    """

    low: int
    high: int
    constant: npt.NDArray[Any]
    factor: npt.NDArray[Any]
    power: npt.NDArray[Any]
    below: npt.NDArray[Any]
    bend: npt.NDArray[np.float64]
    loose: npt.NDArray[np.float64]
    most: npt.NDArray[np.float64]

    @classmethod
    def of(cls, batches: tuple[int, ...], found: IntArray) -> _Formulas:
        """Find them; ``found``: by quantity and batch, below 0 where a profile has none, as the largest never has."""
        low, high, known, exact = batches[0], batches[-1], found >= 0, found.astype(object)
        first, last, times = exact[:, 0], exact[:, -1], known.sum(axis=1)
        power = np.full(len(found), -1)
        for p in range(MOST_POWER + 1):
            meets = [exact[:, k] * high**p == last * batch**p for k, batch in enumerate(batches)]
            power[(np.column_stack(meets).astype(bool) | ~known).all(axis=1) & (power < 0) & (times > 1)] = p
        line = (power < 0) & known.all(axis=1)
        loose = (times < 3) | ((power < 0) & ~line)
        most = np.where(power < 0, MOST_POWER, power + 1).astype(float)
        power = np.where(power < 0, 1, power).astype(object)
        formulas = cls(
            low,
            high,
            constant=np.where(line, first * high - last * low, 0),
            factor=np.where(line, last - first, last),
            power=power,
            below=np.where(line, high - low, high**power),
            bend=np.zeros(len(found)),
            loose=np.where(loose, last, 0).astype(float),
            most=most,
        )
        for k, batch in enumerate(batches[1:-1], start=1):
            off = np.abs(exact[:, k] - formulas.at(batch)).astype(float) * ~loose * known[:, k]
            np.maximum(formulas.bend, off / ((batch - low) * (high - batch)), out=formulas.bend)
        return formulas

    def at(self, batch: int) -> npt.NDArray[Any]:
        """Return the quantities at a batch, Python's numbers (n,)."""
        found = -(-(self.constant + self.factor * batch**self.power) // self.below)
        return np.asarray(np.maximum(found, 0))

    def uncertainty(self, batch: int) -> IntArray:
        """Return by how many bytes each may be off at a batch, int64 (n,)."""
        times = max(batch / self.high, 1.0)
        found = self.bend * abs(batch - self.low) * abs(batch - self.high)
        found += self.loose * (times**self.most - times ** self.power.astype(float))
        return np.ceil(np.minimum(found, _MOST_BYTES // max(len(found), 1))).astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class StepPrediction(Prediction):
    """A step as a function of its batch size. Made by `fit_steps`.

    Attributes
    ----------
    batches
        Batch sizes of the profiles, rising.
    reference
        The profile of the largest.
    matched
        Number of blocks requested at the smallest, too.
    deviation
        For the batches between: how far sizes are off, as a share of their bytes.
    unchecked
        Why the profiles check no formula; empty if they do.
    """

    batches: tuple[int, ...]
    reference: Profile
    matched: int
    deviation: Mapping[int, float]
    unchecked: str
    _sizes: _Formulas
    _older: _Formulas | None  # by request, and before the first one
    title = "a step"

    def profile(self, batch: int) -> Profile:
        """Predict the profile at a batch size: what else was alive, too, if all profiles know it; no wall-clock times.

        Raises
        ------
        ProfileError
            The batch is below 1, or one of more than 2**62 bytes.
        """
        if batch < 1:
            raise ProfileError(f"a batch of {batch}; expected 1 or more")
        size = self._sizes.at(batch)
        older = np.zeros(1, object) if self._older is None else self._older.at(batch)
        if size.sum() + older.max() > _MOST_BYTES:
            raise ProfileError(
                f"a batch of {batch:,} has more than {_MOST_BYTES:,} bytes; expected a smaller one"
            )
        step = self._with(size.astype(np.int64))
        if self._older is None:
            return step
        return replace(step, alive=older[:-1].astype(np.int64) + _at_requests(step))

    def _with(self, size: IntArray) -> Profile:
        unknown = np.full(len(size), UNKNOWN_NS)
        step = replace(self.reference, size=size, alloc_ns=unknown, free_ns=unknown, alive=unknown)
        return replace(step, program=None)

    def older(self, batch: int) -> IntArray | None:
        """Return the bytes of older blocks at each request, and before the first one, int64 (n + 1,).

        None if a profile does not know of them.
        """
        return None if self._older is None else self._older.at(batch).astype(np.int64)

    def kept(self, batch: int, alignment: int = 1) -> int:
        """Return the most bytes beside a plan: older and escaped blocks, those of other streams, and uncertain bytes.

        Parameters
        ----------
        alignment
            What the sizes of blocks are rounded up to.
        """
        step, older = self.profile(batch), self.older(batch)
        own = replace(step, size=-(-step.size // alignment) * alignment).unplanned_step_bytes()
        moments = np.append(own[step.start], own[-1:])
        if older is not None:
            moments = older + (moments if len(moments) else 0)
        return int(moments.max(initial=0)) + self.uncertainty(batch)

    def uncertainty(self, batch: int) -> int:
        """Return how many bytes more than predicted a batch may have alive."""
        step = self._with(self._sizes.uncertainty(batch))
        older = np.zeros(len(step) + 1, np.int64) if self._older is None else self._older.uncertainty(batch)
        return int((_at_requests(step) + older[:-1]).max(initial=older[-1]))

    def cannot_tell(self, batch: int) -> str:
        """Return why nothing can be told of a batch size; empty if it can."""
        uncertain = self.uncertainty(batch)
        if self.unchecked or uncertain <= MOST_UNCERTAIN * sum(self._fullest(batch)[1:]):
            return self.unchecked
        each = self._sizes.uncertainty(batch)
        k = int(each.argmax())
        request = f"request {k} ({self.reference.size[k]} bytes at {self.batches[-1]})"
        what = request if each[k] else "older blocks"
        return (
            f"{human_bytes(uncertain)} of a batch of {batch:,} are uncertain: the profiles check no formula of "
            f"{int((each > 0).sum()):,} of {counted(len(each), 'block')}, like {what}"
        )

    def extrapolated(self, batch: int) -> float | None:
        """Return how many times the largest recorded batch it is; None up to ``EXTRAPOLATED``."""
        times = batch / self.batches[-1]
        return times if times > EXTRAPOLATED else None

    def peak(self, /, **shapes: Any) -> Peak:
        """Predict the fullest moment of ``batch=N``: older blocks are arguments, those that escape results."""
        if shapes.keys() != {"batch"}:
            raise ProfileError(f"{', '.join(shapes) or 'nothing'}; expected batch, and no other number")
        batch = int(shapes["batch"])
        tick, older, escaped, planned = self._fullest(batch)
        lines = alive_at(self.profile(batch), tick)[1]
        why, beyond = self.cannot_tell(batch), batch / self.batches[-1]
        return Peak.of(older, escaped + planned, escaped, lines, why, 0, beyond)

    def _fullest(self, batch: int) -> LiveBytes:
        """Return what is alive at the fullest moment: of the program, or of the step's blocks if no more is known."""
        step, older = self.profile(batch), self.older(batch)
        live, escaped = step.step_bytes(), step.escaped_bytes()
        if not len(live):
            return LiveBytes(0, 0, 0, 0)
        parts, wrapped = step.at_live_peak(), int(live[-1] - escaped[-1])
        if older is not None and parts is not None:
            return max(parts, LiveBytes(-1, int(older[-1]), 0, wrapped), key=lambda one: sum(one[1:]))
        tick = int(live.argmax())
        return LiveBytes(tick, 0, int(escaped[tick]), int(live[tick] - escaped[tick]))

    def explain(self) -> str:
        """Return how it was fitted, and by line what is alive at the fullest moment of twice the largest batch."""
        batch = 2 * self.batches[-1]
        why = self.cannot_tell(batch)
        lines = [f"  {count:,}  {line}" for line, count in self.peak(batch=batch).lines.items()]
        return "\n".join([self.head, *[f"cannot tell: {why}"] * bool(why), *lines])

    @property
    def head(self) -> str:
        """What it was made of, and how far that is off in between."""
        blocks = f"{counted(len(self.reference), 'block')}, {self.matched:,} of them fitted"
        checks = [f"checked at {batch}: {share:.3%} off" for batch, share in self.deviation.items()]
        return "; ".join([f"{blocks} from batches {self.batches[0]} and {self.batches[-1]}", *checks])

    def _along(self, name: str, axis: int, shapes: Mapping[str, Any]) -> tuple[str, Callable[[int], Peak]]:
        return name, lambda number: self.peak(**{**shapes, name: number})


def _at_requests(step: Profile) -> IntArray:
    """Return the bytes of the step's blocks at each request, int64 (n,)."""
    return step.step_bytes()[step.start]


def fit_steps(profiles: Mapping[int, Profile], retained: int | None = None) -> StepPrediction:
    """Fit the sizes of a step's blocks, and the bytes of older ones, as formulas of the batch.

    Parameters
    ----------
    profiles
        By batch size, two or more; from three on they check the formulas. Take 2 rather than 1 for the smallest: at 1
        array libraries leave out copies.
    retained
        Bytes of older blocks at all times, in place of what the profiles know of them.

    Raises
    ------
    ProfileError
        There are fewer than two, a batch is below 1, or more than ``MOST_DIFFERENT`` of a step's requests have no
        counterpart in the largest batch's.

    Examples
    --------
    A block of 1000 bytes, and one of 10 bytes for each sample; batch 3 meets the formulas of batches 2 and 4:

    >>> from stowplan import Profile
    >>> from stowplan.prediction.profile_scaling import fit_steps
    >>> profiles = {n: Profile([1000, 10 * n], start=[0, 1], end=[3, 2], period=4) for n in (2, 3, 4)}
    >>> fitted = fit_steps(profiles)
    >>> fitted.peak(batch=32).total, fitted.deviation
    (1320, {3: 0.0})
    """
    batches = tuple(sorted(profiles))
    if len(batches) < 2:
        raise ProfileError(f"{counted(len(batches), 'profile')}; expected those of two or more batch sizes")
    if batches[0] < 1:
        raise ProfileError(f"a batch of {batches[0]}; expected 1 or more")
    reference = profiles[batches[-1]]
    pairs = [_counterparts(batch, profiles[batch], batches[-1], reference) for batch in batches]
    sizes, older = (np.full((len(reference) + more, len(batches)), -1, dtype=np.int64) for more in (0, 1))
    for k, batch in enumerate(batches):
        profile, (mine, others) = profiles[batch], pairs[k].T
        sizes[others, k] = profile.size[mine]
        rest = profile.unplanned_bytes()
        if rest is not None:
            rest -= profile.unplanned_step_bytes()
            older[others, k], older[-1, k] = rest[profile.start[mine]], rest[-1]
            before = np.searchsorted(others, np.arange(len(reference)), "right") - 1
            older[:-1, k] = older[others[np.maximum(before, 0)], k]
    formulas, deviation = _Formulas.of(batches, sizes), dict[int, float]()
    why = "" if batches[1:-1] else "two batch sizes check no formula; expected the profile of a third one"
    for k, batch in enumerate(batches[1:-1], start=1):
        known = sizes[:, k] >= 0
        size = np.where(known, formulas.at(batch), 0).astype(np.int64)
        deviation[batch] = float(np.abs(sizes[:, k] - size)[known].sum() / max(profiles[batch].size.sum(), 1))
        steps = profiles[batch], replace(reference, size=size)
        found, predicted = (int(one.step_bytes().max(initial=0)) for one in steps)
        if abs(found - predicted) > TOLERANCE * found:
            why = (
                f"the step of batch {batch} has {found:,} bytes alive at most, and by the formulas of its blocks, with "
                f"the lifetimes of batch {batches[-1]}, {predicted:,}; expected steps that differ in sizes alone"
            )
    if retained is not None:
        older[:] = retained
    more = _Formulas.of(batches, older) if (older[-1] >= 0).all() else None
    return StepPrediction(batches, reference, len(pairs[0]), deviation, why, formulas, more)


def largest_batch(
    model: StepPrediction, memory: int, *, alignment: int, **how: Any
) -> tuple[int, Plan] | None:
    """Find the largest batch whose arena and all that is kept beside it fit a memory.

    Lower bounds, which are cheap, give the first candidate; if its plan does not fit, plans decide. O(log batch) of
    each.

    Parameters
    ----------
    memory
        Bytes.
    alignment, how
        As for ``stowplan.planning.make_plan``.

    Returns
    -------
    The batch and its plan; None if not even a batch of 1 fits.

    Raises
    ------
    ProfileError
        A larger batch needs no more bytes, so that there is no largest one.
    """

    def plan(batch: int) -> Plan:
        return make_plan(model.profile(batch), alignment=alignment, **how)

    def left(batch: int) -> int:
        return memory - model.kept(batch, alignment)

    def bound_fits(batch: int) -> bool:
        return lower_bound(problem_of(model.profile(batch), alignment)[0]) <= left(batch)

    batch = last_that(bound_fits, _MOST_BATCH)
    if batch >= _MOST_BATCH:
        raise ProfileError(
            f"a batch of {batch:,} fits, too; expected profiles of blocks that grow with the batch"
        )
    if batch and plan(batch).arena_bytes > left(batch):
        batch = last_that(lambda larger: plan(larger).arena_bytes <= left(larger), _MOST_BATCH, batch)
    return (batch, plan(batch)) if batch else None


def _counterparts(low: int, small: Profile, high: int, large: Profile) -> IntArray:
    """Pairs of the same block at two batches, int64 (k, 2), of nearly all."""
    n, m, steps = len(small), len(large), (small, large)
    if np.array_equal(small.start, large.start) and np.array_equal(small.end, large.end):
        return np.column_stack([np.arange(m)] * 2)
    sizes = [step.size.tolist() for step in steps]
    names = [[(*step.sites, None)[k] for k in step.site.tolist()] for step in steps]

    def same(i: int, j: int) -> bool:
        a, b = sizes[0][i], sizes[1][j]
        power = any(b * low**p == a * high**p for p in range(2, MOST_POWER + 1))
        return bool(a <= b and (b * low <= a * high or power) and names[0][i] == names[1][j])

    pairs = match_sequences(n, m, same, int(MOST_DIFFERENT * (n + m)))
    if pairs is None:
        k = min(_first(small, large), *(k for k in range(min(n, m)) if not same(k, k)), n, m)
        first = " and ".join(f"{size[k]} bytes" if k < len(size) else "none" for size in sizes)
        raise ProfileError(
            f"the steps at batches {low} and {high} differ in more than {MOST_DIFFERENT:.0%} of their {n} and {m} "
            f"requests, first at request {k}: {first}; expected sizes that grow with the batch"
        )
    return pairs


def _first(one: Profile, other: Profile) -> int:
    """Return the request at which two steps first ask or free otherwise; lifetimes of earlier ones differ as well."""
    rows = [
        sorted(
            (tick, k, ticks is step.end)
            for ticks in (step.start, step.end)
            for k, tick in enumerate(ticks.tolist())
            if tick >= 0
        )
        for step in (one, other)
    ]
    differ = (max(a[1], b[1]) for a, b in zip(*rows, strict=False) if a != b)
    return next(differ, min(len(one), len(other)))
