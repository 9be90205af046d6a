"""What a function of arrays needs at lengths that were never run.

===================  ==================================================================================================
asked                answered by
===================  ==================================================================================================
larger arguments     the laws that small arrays taught (`learning.learn`)
arguments as small   a run at these very shapes
short axes, options  laws for them: a fixed axis, a dtype or an option of another value is another function
no law               *cannot tell*, with the bytes of what follows a law as a lower bound
===================  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ProfileError
from .arguments import (
    SHORT,
    Axis,
    Lengths,
    argument_names,
    arrays,
    axes_of,
    bytes_of,
    is_array,
    key_of,
    like,
    on_device,
    reduced,
    sizes,
    stand_in,
    stand_ins,
    takes,
    varying,
)
from .code import switches
from .learning import SECONDS, Model, learn
from .prediction import Peak, Prediction
from .runs import run

__all__ = ["FunctionPrediction", "predict"]

NOT_SEEN = (
    "Not counted: what C libraries take with malloc (LAPACK's workspaces), and what other processes take."
)


class FunctionPrediction(Prediction):
    """What a function needs, as a function of its arguments' shapes. Made by `stowplan.predict`.

    Attributes
    ----------
    model
        The laws for the example's dtypes and options.
    models
        All laws that it has learned, by what they are for.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        examples: Sequence[Any],
        options: Mapping[str, Any],
        seconds: float = SECONDS,
        models: dict[str, Model] | None = None,
    ) -> None:
        self.function, self.examples, self.options = function, reduced(examples), dict(options)
        self.names = argument_names(function, len(self.examples))
        self.title = str(getattr(function, "__qualname__", None) or getattr(function, "__name__", function))
        self.models, self._seconds, self._switches = models or {}, seconds, switches(function)
        self._given = stand_ins(examples, lambda _, value: value.shape)
        self.model = self._model(self.examples, self.options, varying(self.examples))

    def __repr__(self) -> str:
        return f"<Prediction of {self.title}: {self.explain().splitlines()[0]}>"

    def peak(self, /, **shapes: Any) -> Peak:
        """Predict the fullest moment of a call; see `Prediction.peak`."""
        return self._peak(*self._wanted(shapes))

    def explain(self) -> str:
        """Return the laws as text: what is alive at the fullest moment for long axes, by line."""
        model = self.model
        learned = f"learned from {model.runs} runs in {model.seconds:.1f} s"
        if model.cannot_tell:
            return f"cannot tell: {model.cannot_tell} ({learned})"
        text = [f"{learned}, and checked on three shapes more"]
        if tied := [self._members(axes, " = ") for axes in model.lengths.axes if len(axes) > 1]:
            text[0] += f"; one length: {', '.join(tied)}"
        far = [100_000 * weight for weight in model.lengths.weight]
        best = model.fullest(far)
        live, _, lines = best.at(far)
        about = "up to a rounding, " if best.rounds else ""
        formulas = [best.laws.formula(row, model.names) for row in range(2 + len(best.lines))]
        text.append(f"{about}besides its arguments: {formulas[0]} bytes" if live else "it takes no arrays")
        by_line = dict(zip(best.lines, formulas[2:], strict=True))
        text += [f"  {by_line[line]}  {line}" for line in sorted(lines, key=lambda line: -lines[line])]
        return "\n".join([*text, NOT_SEEN])

    def _along(self, name: str, axis: int, shapes: Mapping[str, Any]) -> tuple[str, Callable[[int], Peak]]:
        if name not in self.names:
            raise ProfileError(f"no argument {name!r}; expected one of {', '.join(self.names)}")
        wanted, options = self._wanted(shapes)
        at = (self.names.index(name), axis)
        tied = Lengths((next((axes for axes in self.model.lengths.axes if at in axes), (at,)),), (1,))
        return f"{name}[{axis}]", lambda length: self._peak(tied.stand_ins(wanted, [length]), options)

    def _wanted(self, shapes: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return stand-ins for the arguments, and the options."""
        wanted, options = list(self._given), dict(self.options)
        for name, value in shapes.items():
            if name not in self.names:
                if name not in options and not takes(self.function, name):
                    raise ProfileError(
                        f"no argument {name!r}; expected one of {', '.join((*self.names, *options))}"
                    )
                options[name] = value
                continue
            which = self.names.index(name)
            example = self.examples[which]
            wanted[which] = stand_in(name, value, example) if is_array(example) else value
        return wanted, options

    def _peak(self, wanted: Sequence[Any], options: Mapping[str, Any]) -> Peak:
        given, model = bytes_of(wanted), self.model
        if given >= model.least_bytes:
            long = frozenset(axis for axis, count in axes_of(wanted).items() if count > SHORT)
            model = self._model(wanted, options, long)
        if model.cannot_tell and not model.names:
            return Peak(given, 0, 0, cannot_tell=model.cannot_tell)
        if given < model.least_bytes or not model.names:
            return self._run(wanted, options, given, model.cannot_tell)
        lengths, why = [], ""
        for axes, name in zip(model.lengths.axes, model.names, strict=True):
            found = sorted({wanted[argument].shape[axis] for argument, axis in axes})
            lengths.append(found[0])
            if len(found) > 1 and not model.only_equal:
                counts = ", ".join(map(str, found))
                raise ProfileError(f"{self._members(axes, ', ')} are one length; got {counts} for {name}")
            if len(found) > 1:
                why = f"{self._members(axes, ' and ')} differ, and it follows a law only where they are equal"
        why = model.cannot_tell or why or self._beyond(model, lengths, sizes(wanted))
        live, results, lines = model.fullest(lengths).at(lengths)
        unseen = [] if any(map(on_device, self.examples)) else model.in_place(lengths, (given + live) // 100)
        if unseen:
            live = max(live - sum(lines.pop(line, 0) for line in unseen), results)
            why = why or (
                f"NumPy computes in place from 256 KiB on, and {unseen[0]} allocated no such block in any run, as it "
                "will here"
            )
        return Peak.of(given, live, results, lines, why)

    def _beyond(self, model: Model, lengths: Sequence[int], asked: Sequence[int]) -> str:
        """Tell how some lengths differ from all that were tried, so that the laws tell nothing of them."""
        for small, large in model.below:
            if lengths[small] > lengths[large]:
                return (
                    f"{model.names[small]} is above {model.names[large]}, and was below it in all runs; "
                    "give an example in which it is above"
                )
        for kind, number, line in self._switches:
            n = ("size", "nbytes", "length").index(kind)
            if model.largest[n] <= number <= asked[n]:
                return f"the code switches at a {kind} of {number:,} ({line}), above all that were tried"
        return ""

    def _run(self, wanted: Sequence[Any], options: Mapping[str, Any], given: int, why: str) -> Peak:
        """Run the function at these very shapes, which are no larger than those learned from."""
        try:
            found = run(self.function, arrays(self.examples, wanted), options)[0]
        except Exception as error:  # any: it is the user's function
            failed = f"it fails at this shape ({type(error).__name__}: {error})"
            return Peak(given, 0, 0, cannot_tell=why or failed)
        if not len(found.live):
            return Peak(given, 0, 0, cannot_tell=why)
        return Peak.of(given, found.peak, *found.at(int(found.live.argmax())), why)

    def _model(self, wanted: Sequence[Any], options: Mapping[str, Any], vary: frozenset[Axis]) -> Model:
        """Return the laws for some dtypes, short axes and options; learn them if they are not known."""
        asked = like(self.examples, wanted)
        key = key_of(asked, options, vary)
        if key not in self.models:
            examples = arrays(self.examples, asked)
            self.models[key] = learn(self.function, examples, options, self.names, vary, self._seconds)
        return self.models[key]

    def _members(self, axes: Sequence[Axis], between: str) -> str:
        return between.join(f"{self.names[argument]}[{axis}]" for argument, axis in axes)


def predict(
    function: Callable[..., Any], /, *example_arrays: Any, learning_seconds: float = SECONDS, **options: Any
) -> Prediction:
    """Learn what a function of arrays needs, by some 20 runs on small arrays.

    Parameters
    ----------
    function
        Any function of NumPy or CuPy arrays. Side effects occur in every run.
    example_arrays
        Its arguments. Their dtypes, ranks, values and the order of their lengths are examples. Sizes are chosen, and
        the arrays are never changed.
    learning_seconds
        Seconds after which it gives up, and cannot tell. What it learns does not depend on them. Give more for a
        function that takes long on small arrays, like a training step.
    options
        Its keywords, passed on as they are.

    Returns
    -------
    An object that tells the peak at any shapes: `.Prediction`.

    Notes
    -----
    What C libraries take with malloc besides their arrays (LAPACK's workspaces) is not counted, nor what other
    processes take. A switch of the algorithm at a size beyond those tried cannot be seen either.

    Each axis of the arguments is a length of its own, as long as the function takes such arrays; else axes of equal
    length in the example are tied: ``x @ y`` has three lengths. Short axes are fixed, and learned again at other
    lengths. Lengths are doubled until the large blocks of each line have 256 KiB, from which on NumPy computes in
    place; or the arguments 4 MiB, the peak 32 MiB, or until a run makes 16,384 blocks. The function runs again on the
    same values, and on others: mirrored, unevenly spread, scaled. The live bytes at each allocation are whole-number
    polynomials of the lengths, which three more shapes check to the byte, or up to a rounding (``n // 2``).

    It cannot tell where

    - sizes depend on values (``x[x > 0]``, iterations until something converges), or are rounded to others, as in
      ``scipy.signal.fftconvolve``;
    - a line's blocks were below 256 KiB in all runs in which the laws hold, also of long and narrow arrays, would not
      be here, and are 1 % or more of all;
    - learning takes too long, or calls with equal lengths differ: caches, lists that grow;
    - the result is a generator, or other threads allocate, and how many do at once is chance;
    - the function's own code compares a size with a number beyond those tried: ``if x.size > 10**6``;
    - the order of two lengths was another one in all runs: a matrix that was always tall;
    - a result lies in memory that NumPy has not allocated (Numba), or more memory is touched than arrays explain
      (LAPACK).

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
