"""A guard before a call: what it will need, against what there is, before it requests its first byte.

::

    @stowplan.guard(memory="80%")
    def correlate(x): ...

    MemoryError: correlate needs 53.6 GiB, and 14.8 GiB are free (the control group's limit, 80% of 18.5 GiB);
    most at analysis.py:12 correlate; at most 16,400 of x[0] fit

The first call with arguments of `SMALL` bytes or more learns the laws (`stowplan.prediction.predict`), or reads what an
earlier process has learned. A call at shapes not seen yet is recorded; if its peak is off by more than `WRONG` from the
prediction, the laws are dropped, with a warning.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import ProfileError
from ..files import atomic_write
from ..host_memory import control_groups
from ..units import human_bytes, parse_bytes, parse_share
from .arguments import bytes_of, is_array
from .code import fingerprint
from .functions import FunctionPrediction
from .learning import SECONDS, Model
from .prediction import Peak
from .runs import is_plain, run

__all__ = ["available", "guard"]

F = TypeVar("F", bound=Callable[..., Any])
SMALL = 1 << 16
"""Bytes of arguments below which a call is not looked at."""
WRONG = 0.02
"""Share of the peak by which a prediction may be off."""


def guard(
    memory: int | str = "80%", chunks: int | None = None, learning_seconds: float = SECONDS
) -> Callable[[F], F]:
    """Return a decorator that raises an error before a call that will not fit.

    Parameters
    ----------
    memory
        What the call may request: of the free memory ``"80%"``, or bytes, or text such as ``"8 GiB"``.
    chunks
        An axis of the first array. A call that does not fit warns with the largest chunk along it, and goes on.
    learning_seconds
        Seconds after which learning is given up; see `predict`.

    Raises
    ------
    MemoryError
        By the function: it needs more. The message has the need, what is free, the line and the largest chunk.

    Warns
    -----
    RuntimeWarning
        By the function: it does not fit, with ``chunks``; or the laws were wrong by more than 2 % and are dropped.

    Notes
    -----
    The first call runs the function some 20 times on small arrays before: side effects occur as
    often. Where it cannot tell, the lower bound is compared. Laws are kept in ``stowplan/predict`` of the user's cache
    directory (``XDG_CACHE_HOME``), by the code of the function and of those it calls in its module, and by versions.

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
    ) -> None:
        self._function, self._free, self._chunks, self._seconds = function, free, chunks, seconds
        self._predictions: dict[str, FunctionPrediction] = {}
        self._peaks: dict[str, Peak] = {}

    def __call__(self, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        with suppress(TypeError, ValueError):  # the function says itself what it does not take
            bound = inspect.signature(self._function).bind(*arguments, **options)
            arguments, options = bound.args, bound.kwargs
        given = bytes_of(arguments)
        if given < SMALL:
            return self._function(*arguments, **options)
        kind = _kind(arguments, options, lambda value: (value.ndim, value.dtype.str))
        if kind not in self._predictions:
            self._predictions[kind] = self._learnt(kind, arguments, options)
        prediction = self._predictions[kind]
        if given < prediction.model.least_bytes:  # as small as what was tried
            return self._function(*arguments, **options)
        key = _kind(arguments, options, lambda value: (value.shape, value.dtype.str))
        named = dict(zip(prediction.names, arguments, strict=True))
        new = key not in self._peaks
        peak = self._peaks[key] = prediction.peak(**named) if new else self._peaks[key]
        free, why = self._free()
        if peak.asked > free:
            text = self._refusal(prediction, peak, named, free, why)
            if self._chunks is None:
                raise MemoryError(text)
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        if new and not peak.cannot_tell and is_plain():
            return self._checked(kind, peak, arguments, options)
        return self._function(*arguments, **options)

    def _learnt(self, kind: str, arguments: Sequence[Any], options: dict[str, Any]) -> FunctionPrediction:
        """Return the laws of an earlier process, or learn them and keep them for later ones."""
        file = cache_file(self._function, kind)
        models: dict[str, Model] = {}
        with suppress(Exception):  # any: a file of another version, or none
            models = {key: Model.read(kept) for key, kept in json.loads(file.read_text()).items()}
        found = FunctionPrediction(self._function, arguments, options, self._seconds, dict(models))
        if len(found.models) > len(models):
            with suppress(OSError):
                file.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(file) as out:
                    kept = {key: asdict(model) for key, model in found.models.items()}
                    out.write(json.dumps(kept, default=np.ndarray.tolist).encode())
        return found

    def _refusal(
        self, prediction: FunctionPrediction, peak: Peak, named: dict[str, Any], free: int, why: str
    ) -> str:
        name, array = next((name, value) for name, value in named.items() if is_array(value))
        axis = array.shape.index(max(array.shape)) if self._chunks is None else self._chunks
        text = (
            f"{self._function.__name__} needs {'at least ' if peak.cannot_tell else ''}{human_bytes(peak.asked)}, and "
            f"{human_bytes(free)} are free ({why}); most at {peak.line}"
        )
        with suppress(ProfileError):
            largest = prediction._largest(name, axis, named, lambda one: one.asked <= free) or 0
            text += f"; at most {largest:,} of {name}[{axis}] fit"
        return text

    def _checked(self, kind: str, peak: Peak, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        """Call the function, record its peak, and drop laws that are wrong."""
        results: list[Any] = []

        def call(*values: Any, **more: Any) -> Any:
            results.append(self._function(*values, **more))
            return results[0]

        found = run(call, arguments, options, quiet=False, sites=False)[0]
        if abs(found.peak - peak.asked) > WRONG * peak.total + 4096:
            self._peaks.clear()
            del self._predictions[kind]
            with suppress(OSError):
                cache_file(self._function, kind).unlink()
            warnings.warn(
                f"stowplan predicted {human_bytes(peak.asked)} for {self._function.__name__}, and it allocated "
                f"{human_bytes(found.peak)}: what was learned is dropped",
                RuntimeWarning,
                stacklevel=4,
            )
        return results.pop()


def _kind(arguments: Sequence[Any], options: dict[str, Any], of: Callable[[Any], Any]) -> str:
    return repr([[of(value) if is_array(value) else value for value in arguments], options])


def available(share: float = 1.0) -> tuple[int, str]:
    """Return the bytes that this process may still take, and what limits them: machine, control group or RLIMIT.

    Parameters
    ----------
    share
        The share of the free bytes, above 0 and up to 1.
    """
    found = [(max(count, 0), name) for name, count in _limits()]
    count, name = min(found, default=(sys.maxsize, "no limit known"))
    return int(count * share), f"{share:.0%} of {human_bytes(count)}, {name}" if share < 1 else name


def _limits() -> list[tuple[str, int]]:
    found = []
    with suppress(OSError, ValueError, IndexError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable"))
        found.append(("the machine's", 1024 * int(line.split()[1])))
    found.extend(("the control group's", limit - usage) for limit, usage in control_groups())
    with suppress(ImportError, OSError, ValueError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            found.append(("RLIMIT_AS", most - pages * resource.getpagesize()))
    return found


def cache_file(function: Callable[..., Any], kind: str) -> Path:
    """Return the file for what was learned of a function with such arguments."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(repr((fingerprint(function), kind)).encode()).hexdigest()[:24]
    return folder / "stowplan" / "predict" / f"{getattr(function, '__name__', 'function')}-{digest}.json"
