"""A guard before a call: what it will need, against what there is, before it requests its first byte.

::

    @stowplan.guard(memory="80%")
    def correlate(x): ...

    MemoryError: correlate needs 53.6 GiB, and 14.8 GiB are free (the control group's limit, 80% of 18.5 GiB);
    most at analysis.py:12 correlate; at most 16,400 of x[0] fit

Every call is looked at. The first one learns the laws (`stowplan.prediction.predict`), in runs of up to the guard's own
limit, or reads what an earlier process has learned. What cannot be judged is said once, in one line. A call at shapes
not seen yet is recorded; if its peak is off by more than `WRONG` from the prediction, the laws are dropped, with a
warning.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import ProfileError
from ..files import atomic_write
from ..units import human_bytes, parse_bytes, parse_share
from .arguments import SHORT, StandIn, is_array, is_number, on_device, standing_for
from .child import available
from .code import fingerprint
from .functions import FunctionPrediction
from .learning import SECONDS, SHARE
from .model import Model
from .prediction import Peak
from .runs import Recording, is_plain

__all__ = ["available", "guard"]

F = TypeVar("F", bound=Callable[..., Any])
WRONG = 0.02
"""Share of the peak by which a prediction may be off."""
LEAST = 1 << 25
"""Bytes that runs may take, however low the limit is."""
MOST_KINDS = 8
"""Kinds of arguments (dtypes, layouts, values that are no lengths) that are learned; further ones are not judged."""


def guard(
    memory: int | str = "80%",
    chunks: int | None = None,
    learning_seconds: float = SECONDS,
    strict: bool = False,
) -> Callable[[F], F]:
    """Return a decorator that raises an error before a call that will not fit.

    Parameters
    ----------
    memory
        What the call may request: of the free memory ``"80%"``, or bytes, or text such as ``"8 GiB"``.
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
        the laws were wrong by more than 2 % and are dropped.

    Notes
    -----
    The first call runs the function in a child process before, for up to ``learning_seconds``: files that it writes
    are written as often. Where it cannot tell, the lower bound is compared. Laws are kept in ``stowplan/predict`` of
    the user's cache directory (``XDG_CACHE_HOME``), by the code of the function and of those it calls in its module,
    and by versions. Arrays of a device are not judged.

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
    share = parse_share(memory)
    most = None if share is not None else parse_bytes(memory)

    def decorate(function: F) -> F:
        one = _Guard(
            function,
            lambda: available(share or 1.0) if most is None else (most, "as asked"),
            chunks,
            learning_seconds,
            strict,
        )

        @functools.wraps(function)
        def guarded(*arguments: Any, **options: Any) -> Any:
            return one(arguments, options)

        return guarded  # type: ignore[return-value]

    return decorate


class _Guard:
    """What a guarded function has learned: predictions by kinds of arguments, peaks by shapes."""

    def __init__(
        self,
        function: Callable[..., Any],
        free: Callable[[], tuple[int, str]],
        chunks: int | None,
        seconds: float,
        strict: bool,
    ) -> None:
        self._function, self._free, self._chunks, self._seconds = function, free, chunks, seconds
        self._strict, self._learned = strict, 0
        self._predictions: dict[str, FunctionPrediction] = {}
        self._peaks: dict[str, Peak] = {}
        self._said: set[str] = set()

    def __call__(self, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        with suppress(TypeError, ValueError):  # the function says itself what it does not take
            bound = inspect.signature(self._function).bind(*arguments, **options)
            arguments, options = bound.args, bound.kwargs
        free, why = self._free()
        kind = ""
        try:
            given = [
                standing_for("an argument", one) if is_array(one) else one
                for one in (*arguments, *options.values())
            ]
            kind = _key(given, [*options], lambda one: (len(one.shape), one.kind), lambda n: n > SHORT)
            prediction = self._predictions.get(kind) or self._learnt(kind, arguments, options, free)
            named = dict(zip(prediction.names, given, strict=True))
            key = _key(given, [*options], lambda one: (one.shape, one.kind), lambda n: False)
            new = key not in self._peaks
            if new and prediction.is_slight(named, free):
                return self._function(*arguments, **options)
            peak = self._peaks[key] = prediction.peak(**named) if new else self._peaks[key]
        except ProfileError as error:
            self._say(kind or str(error), f"cannot judge this call: {error}")
            return self._function(*arguments, **options)
        if peak.asked > free:
            text = self._refusal(prediction, peak, named, free, why)
            if self._chunks is None:
                raise MemoryError(text)
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        elif peak.doubt:
            self._say(kind, str(peak))
        if new and not peak.cannot_tell and is_plain():
            return self._checked(kind, peak, arguments, options)
        return self._function(*arguments, **options)

    def _say(self, key: str, what: str) -> None:
        text = f"the guard of {_name(self._function)}: {what}"
        if self._strict:
            raise MemoryError(text)
        if key not in self._said:
            self._said.add(key)
            warnings.warn(text, RuntimeWarning, stacklevel=4)

    def _learnt(
        self, kind: str, arguments: Sequence[Any], options: dict[str, Any], free: int
    ) -> FunctionPrediction:
        """Return the laws of an earlier process, or learn them and keep them for later ones."""
        if any(map(on_device, (*arguments, *options.values()))):
            raise ProfileError("its arrays are a device's, of whose memory the guard knows nothing")
        if self._learned == MOST_KINDS:
            raise ProfileError(
                f"its arguments are of more than {MOST_KINDS} kinds; expected fewer that are no lengths"
            )
        self._learned += 1
        memory = min(available(SHARE)[0], max(free, LEAST))
        file = cache_file(self._function, f"{kind} {memory.bit_length()}")
        models: dict[str, Model] = {}
        with suppress(Exception):  # any: a file of another version, or none
            models = {key: Model.read(kept) for key, kept in json.loads(file.read_text()).items()}
        found = FunctionPrediction(self._function, arguments, options, self._seconds, memory, dict(models))
        if len(found.models) > len(models):
            with suppress(OSError):
                file.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(file) as out:
                    kept = {key: asdict(model) for key, model in found.models.items()}
                    out.write(json.dumps(kept, default=np.ndarray.tolist).encode())
        found.file = file
        self._predictions[kind] = found
        return found

    def _refusal(
        self, prediction: FunctionPrediction, peak: Peak, named: dict[str, Any], free: int, why: str
    ) -> str:
        sure = "at least " if peak.cannot_tell else ""
        text = (
            f"{_name(self._function)} needs {sure}{human_bytes(peak.asked)}, and {human_bytes(free)} are free"
        )
        text += f" ({why})"
        text += f"; most at {peak.line}" if peak.line else ""
        text += f"; {peak.doubt}" if peak.doubt else ""
        axes = [
            (name, n, axis)
            for name, one in named.items()
            if is_array(one)
            for axis, n in enumerate(one.shape)
        ]
        axes += [(name, one, 0) for name, one in named.items() if is_number(one)]
        name, _, axis = max(axes, key=lambda one: one[1], default=("", 0, 0))
        if self._chunks is not None:
            name, axis = next(name for name, one in named.items() if is_array(one)), self._chunks
        with suppress(ProfileError, KeyError):
            largest = prediction._largest(name, axis, named, lambda one: one.asked <= free) or 0
            length = f"{name}[{axis}]" if is_array(named[name]) else name
            text += f"; at most {largest:,} of {length} fit"
        return text

    def _checked(self, kind: str, peak: Peak, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        """Call the function, record its peak, and drop laws that are wrong."""
        with Recording(sites=False) as recording, recording.call():
            result = self._function(*arguments, **options)
        found = recording.runs[0].most
        if abs(found - peak.asked) > WRONG * peak.total + 4096:
            self._peaks.clear()
            with suppress(OSError):
                self._predictions.pop(kind).file.unlink()
            warnings.warn(
                f"stowplan predicted {human_bytes(peak.asked)} for {_name(self._function)}, and it allocated "
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


def cache_file(function: Callable[..., Any], kind: str) -> Path:
    """Return the file for what was learned of a function with such arguments."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(repr((fingerprint(function), kind)).encode()).hexdigest()[:24]
    return folder / "stowplan" / "predict" / f"{getattr(function, '__name__', 'function')}-{digest}.json"
