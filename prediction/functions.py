"""What a function of arrays needs at lengths that were never run.

===================  ==================================================================================================
asked                answered by
===================  ==================================================================================================
larger arguments     the formulas that runs have taught (`fit_function.learn`); far beyond those runs, as *extrapolated*
arguments as small   a run at these very shapes
short axes, options  formulas for them: another fixed axis, dtype, layout or value of an option is another function
no formula           *cannot tell*, with the bytes of what follows a formula as a lower bound
===================  ==================================================================================================

All runs are those of a child process (`child`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..common.errors import ProfileError
from ..common.units import human_bytes
from .child import SPARE, in_child
from .fit_function import SECONDS, learn
from .model import Model
from .prediction import EXTRAPOLATED, Peak, Prediction
from .shape_variables import (
    NUMBER,
    SHORT,
    Axis,
    Lengths,
    argument_names,
    arrays,
    axes_of,
    bytes_of,
    is_array,
    is_number,
    key_of,
    like,
    name_of,
    on_device,
    reduced,
    refusal,
    standing_for,
    stood_in,
    varying,
)
from .traced_run import run

NOT_SEEN = (
    "Not counted: what other processes take, and of a device's arrays all but the library's own blocks."
)


class FunctionPrediction(Prediction):
    """What a function needs, as a function of its arguments' shapes. Made by `stowplan.predict`.

    Attributes
    ----------
    model
        The formulas for the example's dtypes and options.
    models
        All formulas that it has learned, by what they are for.
    memory
        Bytes that a run may have alive; 0: what is at hand decides.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        examples: Sequence[Any],
        options: Mapping[str, Any],
        seconds: float = SECONDS,
        memory: int = 0,
    ) -> None:
        count = len(examples)
        self.names = (*argument_names(function, count), *options)
        self.title = str(getattr(function, "__qualname__", None) or getattr(function, "__name__", function))
        examples = [*examples, *options.values()]
        for name, value in zip(self.names, examples, strict=True):
            if what := refusal(value):
                raise ProfileError(
                    f"{name} of {self.title} is a {what}; expected arrays, numbers and plain values"
                )
        self.given = [
            standing_for(name, value) if is_array(value) else value
            for name, value in zip(self.names, examples, strict=True)
        ]
        if not any(is_array(value) or is_number(value) for value in examples):
            raise ProfileError(
                f"{self.title} is given no array, and no number above 4; expected an example of a size"
            )
        self._examples = reduced(examples, self.given)
        self.models, self._seconds, self.memory = dict[str, Model](), seconds, memory
        self._function: Callable[..., Any] = lambda *values: function(
            *values[:count], **dict(zip(self.names[count:], values[count:], strict=True))
        )
        self.model = self._model(self.given, varying(self.given))

    def __repr__(self) -> str:
        return f"<Prediction of {self.title}: {self.explain().splitlines()[0]}>"

    def peak(self, /, **shapes: Any) -> Peak:
        """Predict the fullest moment of a call; see `Prediction.peak`."""
        return self._peak(self._wanted(shapes))

    def explain(self) -> str:
        """Return the formulas as text: what is alive at the fullest moment for long axes, by line."""
        model = self.model
        learned = f"learned from {model.runs} runs in {model.seconds:.1f} s"
        if model.cannot_tell:
            return f"cannot tell: {model.cannot_tell} ({learned})"
        most = model.largest_run()
        text = [
            f"{learned}, the largest with {human_bytes(most)}; extrapolated beyond "
            f"{human_bytes(EXTRAPOLATED * most)}"
        ]
        if tied := [self._members(axes, " = ") for axes in model.lengths.axes if len(axes) > 1]:
            text[0] += f"; one length: {', '.join(tied)}"
        far = [100_000 * weight for weight in model.lengths.weight]
        best = model.fullest(far)
        live, _, lines = best.at(far)
        about = "up to a rounding, " if best.rounds else ""
        formulas = [best.formulas.formula(row, model.names) for row in range(2 + len(best.lines))]
        text.append(f"{about}besides its arguments: {formulas[0]} bytes" if live else "it takes no arrays")
        by_line = dict(zip(best.lines, formulas[2:], strict=True))
        text += [f"  {by_line[line]}  {line}" for line in sorted(lines, key=lambda line: -lines[line])]
        text += [model.doubt(one.lengths, 0)[0] for one in model.missed[:1]]
        return "\n".join([*text, NOT_SEEN])

    def is_slight(self, named: Mapping[str, Any], memory: int) -> bool:
        """Whether a call is smaller than all that were run, and a run that fits a memory."""
        model, lengths = self._located(wanted := self._wanted(named))
        small = bool(lengths) and not model.cannot_tell and model.is_small(lengths, bytes_of(wanted))
        return small and model.met[0].live <= memory

    def _along(self, name: str, axis: int, shapes: Mapping[str, Any]) -> tuple[str, Callable[[int], Peak]]:
        wanted = self._wanted(shapes)
        if name not in self.names:
            raise self._no_argument(name)
        argument = self.names.index(name)
        at = (argument, axis if is_array(wanted[argument]) else NUMBER)
        tied = Lengths((next((axes for axes in self.model.lengths.axes if at in axes), (at,)),), (1,))
        return name_of(self.names, at), lambda length: self._peak(tied.stand_ins(wanted, [length]))

    def _no_argument(self, name: str) -> ProfileError:
        return ProfileError(f"no argument {name!r} in the example; expected one of {', '.join(self.names)}")

    def _wanted(self, shapes: Mapping[str, Any]) -> list[Any]:
        """Return stand-ins for the arguments."""
        wanted = list(self.given)
        for name, value in shapes.items():
            if name not in self.names:
                raise self._no_argument(name)
            which = self.names.index(name)
            wanted[which] = stood_in(name, value, self.given[which])
        return wanted

    def _located(self, wanted: Sequence[Any]) -> tuple[Model, list[int]]:
        """Return the formulas for some arguments, and their lengths."""
        long = frozenset(axis for axis, count in axes_of(wanted).items() if count > SHORT)
        model = self.model
        if not model.is_small([max(self._at(wanted, axes)) for axes in model.lengths.axes], bytes_of(wanted)):
            model = self._model(wanted, long)
        lengths = []
        for axes, name in zip(model.lengths.axes, model.names, strict=True):
            found = sorted(set(self._at(wanted, axes)))
            lengths.append(found[0])
            if len(found) > 1:
                counts = ", ".join(map(str, found))
                raise ProfileError(f"{self._members(axes, ', ')} are one length; got {counts} for {name}")
        known = {axis for axes in model.lengths.axes for axis in axes}
        for k, axis in sorted(long - known) if model.names else ():
            if axis == NUMBER and wanted[k] != self.given[k]:
                raise ProfileError(
                    f"{self.names[k]} is {wanted[k]:,}, and no formula of it was found; expected {self.given[k]:,}, "
                    "as in the example"
                )
        return model, lengths

    def _at(self, wanted: Sequence[Any], axes: Sequence[Axis]) -> list[int]:
        """Return how long some axes are, and the numbers."""
        return [wanted[k] if axis == NUMBER else wanted[k].shape[axis] for k, axis in axes]

    def _least(self, name: str) -> int:
        return max(self.model.base, default=1)

    def _peak(self, wanted: Sequence[Any]) -> Peak:
        given = bytes_of(wanted)
        model, lengths = self._located(wanted)
        if model.cannot_tell and not model.candidates and not model.met:
            return Peak(given, 0, 0, cannot_tell=model.cannot_tell)
        if model.is_small(lengths, given):
            return self._run(wanted, given, model.cannot_tell)
        live, results, lines = model.fullest(lengths).at(lengths)
        doubt, sure = model.doubt(lengths, given + live)
        if doubt:
            lines = {line: min(count, sure) for line, count in lines.items()}
            live, results = min(live, sure), min(results, sure)
        largest, beyond = model.largest_run(), model.beyond(lengths, given + live)
        return Peak.of(given, live, results, lines, model.cannot_tell or doubt, largest, beyond)

    def _run(self, wanted: Sequence[Any], given: int, why: str) -> Peak:
        """Run the function at these very shapes, which are no larger than those learned from."""

        def once(tell: Callable[[Any], None]) -> None:
            try:
                given_arrays = arrays(self._examples, wanted)
                (found,), (again,) = (
                    run(self._function, given_arrays, sites=not outside, outside=outside)
                    for outside in (False, True)
                )
            except Exception as error:  # any: it is the user's function
                failed = f"it fails at this shape ({type(error).__name__}: {error})"
                tell(Peak(given, 0, 0, cannot_tell=why or failed))
                return
            parts = found.at(int(found.live.argmax())) if len(found.live) else (0, {})
            unseen = again.unseen(total := given + found.peak)
            tell(Peak.of(given, found.peak, *parts, why or unseen, total))

        if any(map(on_device, self._examples)):
            told: list[Peak] = []
            once(told.append)
            return told[0]
        found, failed, _ = in_child(once, self._seconds, SPARE)
        return found or Peak(given, 0, 0, cannot_tell=why or failed)

    def _model(self, wanted: Sequence[Any], vary: frozenset[Axis]) -> Model:
        """Return the formulas for some dtypes, short axes and options; learn them if they are not known."""
        asked = like(self.given, wanted)
        key = key_of(asked, vary)
        if key not in self.models:
            how = self._seconds, self.memory
            self.models[key] = learn(self._function, self._examples, asked, self.names, vary, *how)
        return self.models[key]

    def _members(self, axes: Sequence[Axis], between: str) -> str:
        return between.join(name_of(self.names, axis) for axis in axes)


def predict(
    function: Callable[..., Any], /, *example_arrays: Any, learning_seconds: float = SECONDS, **options: Any
) -> Prediction:
    """Learn what a function of arrays needs, by runs on small arrays and on larger ones, in a child process.

    Parameters
    ----------
    function
        Any function of NumPy or CuPy arrays. It runs in a copy of this process, some 50 times: no variable, cache or
        random state of the program changes; what it writes to files stays.
    example_arrays
        Its arguments: arrays, whole numbers, and values that stay as they are. Dtypes, ranks, layouts (the order of
        strides, gaps, broadcast axes), values and the order of lengths are examples. Sizes are chosen, and the arrays
        are never changed.
    learning_seconds
        Seconds after which learning ends. Give more to a function that takes long, like a training step.
    options
        Its keywords; whole numbers among them are lengths, too.

    Returns
    -------
    An object that tells the peak at any shapes: `.Prediction`.

    Raises
    ------
    ProfileError
        An argument has a size that cannot be told: a list of arrays, a tuple of lengths, an iterator, text that begins
        with a number, an array of another library. Or none has a size.

    Notes
    -----
    Each axis of the arguments, and each number above 4, is a length of its own, as long as the function takes such
    arguments; else those of equal length in the example are tied: ``x @ y`` has three lengths. Short axes are fixed,
    and learned again at other lengths. The live bytes at each allocation are whole-number polynomials of the lengths,
    which three more shapes check to the byte, or up to a rounding (``n // 2``).

    Then the function runs larger and larger, all lengths together and each alone, up to a tenth of the memory at hand
    or until the seconds are over. The formulas tell nothing of lengths like those that did not meet them: a switch of
    the algorithm at a size. An answer with a longer length than 8 times those that were run, or a peak of more than 8
    times as many bytes, is called *extrapolated*.

    It cannot tell where

    - sizes depend on values (``x[x > 0]``, iterations until something converges), or are rounded to others, as in
      ``scipy.signal.fftconvolve``;
    - larger runs did not meet the formulas, or the order of two lengths was another one in all runs;
    - more than 1 % of the memory is not NumPy's arrays': Python's objects, C libraries' (LAPACK, Numba), or arrays in a
      pool that the function enters;
    - learning takes too long, or calls with equal lengths differ: caches, lists that grow;
    - the result is an iterator or a coroutine, or other threads allocate, and how many do at once is chance;
    - it waits for a thread of the program, which the child does not have, or uses a device.

    A function of CuPy arrays runs in this process, as a child cannot use the device.

    Examples
    --------
    >>> import numpy as np
    >>> import stowplan
    >>> def scaled(x):
    ...     return (x - x.mean(axis=0)) / x.std(axis=0)
    >>> prediction = stowplan.predict(scaled, np.random.rand(100, 100))
    >>> peak = prediction.peak(x=(60_000, 60_000))
    >>> round(peak.total / peak.arguments, 3)
    3.0
    """
    return FunctionPrediction(function, example_arrays, options, learning_seconds)
