"""A guard before a call: what it will need, against what there is, before it requests its first byte.

::

    @stowplan.guard(memory="80%")
    def correlate(x): ...

    MemoryError: correlate needs 53.6 GiB, and 14.8 GiB are free (the control group's limit, 80% of 18.5 GiB);
    most at analysis.py:12 correlate; at most 16,400 of x[0] fit

Every call is looked at. The first one learns the formulas (`stowplan.prediction.predict`) in small runs, one that is
larger than these in runs of up to the guard's own limit. What cannot be judged is said once, in one line. Every call is
recorded, too: what it reads besides its arguments (attributes, globals, files) may have grown. If its peak is off by
more than `WRONG` from the prediction, the formulas are dropped, with a warning.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..common.errors import ProfileError
from ..common.units import human_bytes, parse_bytes, parse_share
from ..profiler import NumpyRecorder
from . import child
from .child import available
from .fit_function import SECONDS
from .functions import FunctionPrediction
from .prediction import Peak
from .shape_variables import (
    NUMBER,
    SHORT,
    StandIn,
    axes_of,
    is_array,
    is_number,
    name_of,
    on_device,
    standing_for,
)
from .traced_run import is_plain

F = TypeVar("F", bound=Callable[..., Any])
WRONG = 0.02
"""Share of the peak by which a prediction may be off."""
LEAST = 1 << 25
"""Bytes that the first runs may take."""
MOST_KINDS = 8
"""Kinds of arguments (dtypes, layouts, values that are no lengths) that are learned; further ones are not judged."""


def guard(
    memory: int | str | Callable[..., Any] = "80%",
    chunks: int | None = None,
    learning_seconds: float = SECONDS,
    strict: bool = False,
) -> Callable[[F], F]:
    """Return a decorator that raises an error before a call that will not fit.

    Parameters
    ----------
    memory
        What the call may request: of the free memory ``"80%"``, or bytes, or text such as ``"8 GiB"``. Or the function:
        ``@guard`` alone is ``@guard()``.
    chunks
        An axis of the first array. A call that does not fit warns with the largest chunk along it, and goes on.
    learning_seconds
        Seconds after which learning ends; see `predict`.
    strict
        Raise, too, where it cannot tell, or the prediction is extrapolated.

    Raises
    ------
    MemoryError
        By the function: it needs more. The message has the need, what is free, the line and the largest chunk.

    Warns
    -----
    RuntimeWarning
        By the function: it does not fit, with ``chunks``; a call cannot be judged (once for each kind of arguments); or
        the formulas were wrong by more than 2 % and are dropped.

    Notes
    -----
    The first call, and the first large one, run the function in a child process before, for up to ``learning_seconds``:
    files that it writes are written as often. Where it cannot tell, the lower bound is compared. Arrays of a device are
    not judged.

    Examples
    --------
    >>> import numpy as np
    >>> import stowplan
    >>> @stowplan.guard(memory="1 GiB")
    ... def table(x):
    ...     return x[:, None] * x[None, :]
    >>> table(np.ones(20_000))
    Traceback (most recent call last):
    MemoryError: table needs 3.0 GiB, and 1.0 GiB ...
    """
    if callable(memory):  # @guard, without parentheses
        return guard()(memory)
    share = parse_share(memory)
    most = None if share is not None else parse_bytes(memory)

    def free() -> tuple[int, str]:
        return available(share or 1.0) if most is None else (most, "as asked")

    def decorate(function: F) -> F:
        one = _Guard(function, free, chunks, learning_seconds, strict)

        @functools.wraps(function)
        def guarded(*arguments: Any, **options: Any) -> Any:
            return one(arguments, options)

        return guarded  # type: ignore[return-value]

    return decorate


@dataclass
class _Guard:
    """What a guarded function has learned: predictions by kinds of arguments, peaks by shapes."""

    function: Callable[..., Any]
    free: Callable[[], tuple[int, str]]
    chunks: int | None
    seconds: float
    strict: bool
    learned: int = 0
    predictions: dict[str, FunctionPrediction] = field(default_factory=dict)
    peaks: dict[str, Peak] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)

    def __call__(self, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        with suppress(TypeError, ValueError):  # the function says itself what it does not take
            bound = inspect.signature(self.function).bind(*arguments, **options)
            arguments, options = bound.args, bound.kwargs
        if child.IN_CHILD:  # which learns of a function that calls this one
            return self.function(*arguments, **options)
        free, why = self.free()
        kind = ""
        try:
            given = [
                standing_for("an argument", one) if is_array(one) else one
                for one in (*arguments, *options.values())
            ]
            kind = _key(given, [*options], lambda one: (len(one.shape), one.kind), lambda n: n > SHORT)
            prediction = self.predictions.get(kind) or self._learnt(kind, arguments, options, LEAST)
            named = dict(zip(prediction.names, given, strict=True))
            key = _key(given, [*options], lambda one: (one.shape, one.kind), lambda n: False)
            peak = self.peaks.get(key)
            if peak is None and prediction.is_slight(named, free):
                most = prediction.model.met[0].live
                return self._checked(kind, 0, most, most, arguments, options)
            peak = peak or prediction.peak(**named)
            if (peak.beyond > 1 or peak.cannot_tell) and prediction.memory == LEAST < free:
                prediction = self._learnt(kind, arguments, options, free)
                peak = prediction.peak(**named)
            self.peaks[key] = peak
        except ProfileError as error:
            self._say(kind or str(error), f"cannot judge this call: {error}")
            return self.function(*arguments, **options)
        if peak.asked > free:
            text = self._refusal(prediction, peak, named, free, why)
            if self.chunks is None:
                raise MemoryError(text)
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        elif peak.doubt:
            self._say(kind, str(peak))
        if peak.cannot_tell:
            return self.function(*arguments, **options)
        return self._checked(kind, peak.asked, peak.asked, peak.total, arguments, options)

    def _say(self, key: str, what: str) -> None:
        text = f"the guard of {_name(self.function)}: {what}"
        if self.strict:
            raise MemoryError(text)
        if key not in self.said:
            self.said.add(key)
            warnings.warn(text, RuntimeWarning, stacklevel=4)

    def _learnt(
        self, kind: str, arguments: Sequence[Any], options: dict[str, Any], memory: int
    ) -> FunctionPrediction:
        """Learn the formulas for a kind of arguments, by runs that take some memory at most."""
        if any(map(on_device, (*arguments, *options.values()))):
            raise ProfileError("its arrays are a device's, of whose memory the guard knows nothing")
        if self.learned == 2 * MOST_KINDS:
            raise ProfileError(
                f"its arguments are of more than {MOST_KINDS} kinds; expected fewer that are no lengths"
            )
        self.learned += 1
        found = FunctionPrediction(self.function, arguments, options, self.seconds, memory)
        self.predictions[kind] = found
        return found

    def _refusal(
        self, prediction: FunctionPrediction, peak: Peak, named: dict[str, Any], free: int, why: str
    ) -> str:
        sure = "at least " if peak.cannot_tell else ""
        text = f"{_name(self.function)} needs {sure}{human_bytes(peak.asked)}, "
        text += f"and {human_bytes(free)} are free ({why})"
        text += f"; most at {peak.line}" if peak.line else ""
        text += f"; {peak.doubt}" if peak.doubt else ""
        lengths, names = axes_of(list(named.values())), [*named]
        k, axis = max(lengths, key=lambda one: lengths[one])
        if self.chunks is not None:
            k, axis = next(one for one in lengths if one[1] != NUMBER)[0], self.chunks
        with suppress(ProfileError):
            largest = prediction._largest(names[k], axis, named, lambda one: one.asked <= free) or 0
            text += f"; at most {largest:,} of {name_of(names, (k, axis))} fit"
        return text

    def _checked(
        self, kind: str, least: int, most: int, total: int, arguments: Sequence[Any], options: dict[str, Any]
    ) -> Any:
        """Call the function, record its peak, and drop formulas that are wrong; it was to be from least to most."""
        if not is_plain():
            self._say("", "a call in a pool or a recorder is not recorded: no wrong prediction is noticed")
            return self.function(*arguments, **options)
        with NumpyRecorder(threads=True) as recorder:
            result = self.function(*arguments, **options)
        found, slack = recorder.program().live_peak, WRONG * total + 4096
        if not least - slack <= found <= most + slack:
            self.peaks.clear()
            self.predictions.pop(kind, None)
            warnings.warn(
                f"stowplan predicted {human_bytes(most)} for {_name(self.function)}, and it allocated "
                f"{human_bytes(found)}: what was learned is dropped",
                RuntimeWarning,
                stacklevel=4,
            )
        return result


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))


def _key(
    given: Sequence[Any],
    options: Sequence[str],
    of: Callable[[StandIn], Any],
    is_length: Callable[[int], bool],
) -> str:
    """Return what tells calls apart: of arrays what a function returns, of numbers whether they are lengths."""
    parts = [
        of(one) if isinstance(one, StandIn) else "n" if is_number(one) and is_length(one) else one
        for one in given
    ]
    return repr([parts, options])
