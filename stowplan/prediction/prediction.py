"""Will it fit? What a function of arrays needs at lengths that were never run: `predict`.

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
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import ProfileError
from ..units import human_bytes, parse_bytes
from .arguments import SHORT, Axis, is_array, small_array
from .calls import Progress, argument_names, model_key, name_of, reduced, shape_and_dtype, stand_in, takes
from .learning import Model, learn, sizes
from .runs import run
from .switches import switches

__all__ = ["Peak", "Prediction", "predict"]


@dataclass(frozen=True)
class Peak:
    """What one call has alive at its fullest moment.

    Attributes
    ----------
    arguments, results, temporaries
        Bytes: of arrays given; of results, and what the function keeps; of everything else.
    line
        The line that asked for most of what is alive, beside the arguments; empty if nothing is.
    lines
        Bytes by line, the most first.
    cannot_tell
        Why these bytes are only a lower bound; empty if they are the peak.
    """

    arguments: int
    results: int
    temporaries: int
    line: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    cannot_tell: str = ""

    @property
    def asked(self) -> int:
        """Bytes that the call itself asks for: without the arguments."""
        return self.results + self.temporaries

    @property
    def total(self) -> int:
        """All bytes."""
        return self.arguments + self.asked

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name} {human_bytes(getattr(self, name))}" for name in ("arguments", "results", "temporaries")
        )
        most = f"; most at {self.line}" if self.line else ""
        if self.cannot_tell:
            return f"cannot tell: {self.cannot_tell}; at least {human_bytes(self.total)} ({parts}{most})"
        return f"{human_bytes(self.total)} ({parts}{most})"


class Prediction:
    """What a function needs, as a function of its arguments' shapes. Made by `predict`.

    Attributes
    ----------
    model
        The laws for the example's dtypes and options.
    models
        All laws that it has learnt, by what they are for.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        examples: Sequence[Any],
        options: Mapping[str, Any],
        models: dict[str, Model] | None = None,
    ) -> None:
        self.function, self.examples, self.options = function, reduced(examples), dict(options)
        self.names = argument_names(function, len(self.examples))
        self._switches = switches(function)
        self.models = {} if models is None else models
        self.model = self._model(self.examples, self.options)

    def __repr__(self) -> str:
        return f"<Prediction of {name_of(self.function)}: {self.explain().splitlines()[0]}>"

    def peak(self, **shapes: Any) -> Peak:
        """Predict the fullest moment of a call.

        Parameters
        ----------
        shapes
            By argument: a shape, a length, a pair of shape and dtype, or an array. Otherwise it is as the example.
            An option's name: its value.

        Raises
        ------
        ProfileError
            There is no such argument, a shape has another rank, or axes that are one length differ.
        """
        wanted, options = self._wanted(shapes)
        return self._peak(wanted, options)

    def largest(self, argument: str, axis: int = 0, memory: int | str = "8 GiB", **shapes: Any) -> int | None:
        """Find the most that an axis can have, so that a call with its arguments fits a memory.

        Parameters
        ----------
        argument, axis
            The axis; others that are one length with it grow with it.
        memory
            Bytes, or text such as ``"8 GiB"``.
        shapes
            Of the call otherwise, as for `peak`.

        Returns
        -------
        None if not even a length of 1 fits.

        Raises
        ------
        ProfileError
            The peak follows no law, or does not grow with this axis; or as `peak`.
        """
        wanted, options = self._wanted(shapes)
        if argument not in self.names:
            raise ProfileError(f"no argument {argument!r}; expected one of {', '.join(self.names)}")
        most, at = parse_bytes(memory), (self.names.index(argument), axis)
        return self._largest(wanted, options, at, lambda peak: peak.total <= most)

    def largest_asked(self, argument: str, axis: int, memory: int, **shapes: Any) -> int | None:
        """As `largest`, for a memory that the arguments are not counted to: they are there already."""
        at = (self.names.index(argument), axis)
        return self._largest(*self._wanted(shapes), at, lambda peak: peak.asked <= memory)

    def _largest(
        self, wanted: list[Any], options: dict[str, Any], axis: Axis, fits: Callable[[Peak], bool]
    ) -> int | None:
        def does(length: int) -> bool:
            peak = self._peak(self._resized(wanted, axis, length), options)
            if peak.cannot_tell:
                raise ProfileError(f"cannot tell: {peak.cannot_tell}")
            return fits(peak)

        low, high = 0, 1 << 10
        while does(high):
            low, high = high, high * 2
            if high > 1 << 62:
                name = f"{self.names[axis[0]]}[{axis[1]}]"
                raise ProfileError(f"a length of {low:,} fits, too; expected a peak that grows with {name}")
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if does(middle) else (low, middle)
        return low or None

    def explain(self) -> str:
        """Return the laws as text: what is alive at the fullest moment for long axes, by line."""
        model = self.model
        learnt = f"learnt from {model.runs} runs in {model.seconds:.1f} s"
        if model.cannot_tell:
            return f"cannot tell: {model.cannot_tell} ({learnt})"
        far = [1000 * base for base in model.laws.grid.base]
        best = model.fullest_moment(far)
        ties = [name for name, axes in zip(model.names, model.lengths.axes, strict=True) if len(axes) > 1]
        text = [
            f"{learnt}, and checked on two shapes more"
            + (f"; one length: {', '.join(self._tied(ties))}" if ties else "")
        ]
        if best is None:
            return "\n".join([*text, "it asks for no arrays"])
        about = "up to a rounding, " if best.rounds else ""
        text.append(f"{about}beside its arguments: {self._formula(best.live)} bytes")
        share = model.laws.at(far)
        for line, row in sorted(best.lines.items(), key=lambda item: -share[item[1]]):
            text.append(f"  {self._formula(row)}  {line}")
        text.append("Not seen: what C libraries take with malloc, and other processes.")
        return "\n".join(text)

    def plot(self, argument: str | None = None, axis: int = 0, to: int = 10_000, **shapes: Any) -> Any:
        """Draw the peak over one length, up to ``to``, with Matplotlib; return the axes.

        Raises
        ------
        MissingDependencyError
            Matplotlib is not installed.
        """
        from ..errors import MissingDependencyError

        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise MissingDependencyError(f"plot: {error}; expected: pip install 'stowplan[plot]'") from error
        wanted, options = self._wanted(shapes)
        name = argument or self.names[0]
        lengths = np.unique(np.linspace(max(to // 50, 1), to, 50).astype(int)).tolist()
        axis_of = (self.names.index(name), axis)
        peaks = [self._peak(self._resized(wanted, axis_of, length), options) for length in lengths]
        figure = pyplot.figure().add_subplot()
        parts = [
            [getattr(peak, part) / 2**20 for peak in peaks]
            for part in ("arguments", "results", "temporaries")
        ]
        figure.stackplot(lengths, *parts, labels=("arguments", "results", "temporaries"))
        figure.set(xlabel=f"{name}[{axis}]", ylabel="alive at the peak (MiB)", title=name_of(self.function))
        figure.legend(loc="upper left")
        return figure

    # ------------------------------------------------------------------------------------------------------- inside

    def _wanted(self, shapes: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return stand-ins for the arguments, and the options."""
        wanted, options = list(self.examples), dict(self.options)
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
            if not is_array(example):
                wanted[which] = value
                continue
            shape, dtype = shape_and_dtype(value, example)
            if len(shape) != example.ndim:
                raise ProfileError(
                    f"{name} has the shape {shape}; expected {example.ndim} axes, as in the example"
                )
            wanted[which] = stand_in(example, shape, dtype)
        return wanted, options

    def _resized(self, wanted: Sequence[Any], axis: Axis, length: int) -> list[Any]:
        tied = next((axes for axes in self.model.lengths.axes if axis in axes), (axis,))
        shapes = [list(value.shape) if is_array(value) else [] for value in wanted]
        for argument, at in tied:
            shapes[argument][at] = length
        return [
            stand_in(value, tuple(shape), value.dtype) if is_array(value) else value
            for value, shape in zip(wanted, shapes, strict=True)
        ]

    def _peak(self, wanted: Sequence[Any], options: Mapping[str, Any]) -> Peak:
        arrays = [value for value in wanted if is_array(value)]
        given = sum(int(value.dtype.itemsize) * int(np.prod(value.shape, dtype=object)) for value in arrays)
        if given < self.model.least_bytes:
            return self._small(wanted, options, given, self.model.cannot_tell)
        free: frozenset[Axis] = frozenset()
        fixed: frozenset[Axis] = frozenset()
        model = self._model(wanted, options)
        while True:
            lengths, long, short = self._lengths(model, wanted)
            if not (long - free or short - fixed):
                break
            free, fixed = free | long, fixed | short
            model = self._model(wanted, options, free, fixed)
        if model.cannot_tell and not model.names:
            return Peak(given, 0, 0, cannot_tell=model.cannot_tell)
        if given < model.least_bytes or not model.names:
            return self._small(wanted, options, given, model.cannot_tell)
        why = (
            model.cannot_tell
            or self._unequal(model, wanted)
            or self._unlike(model, lengths)
            or self._switched(model, arrays)
        )
        live, results, lines = model.fullest(lengths)
        ranked = dict(sorted(lines.items(), key=lambda item: -item[1]))
        return Peak(given, results, live - results, next(iter(ranked), ""), ranked, why)

    def _lengths(
        self, model: Model, wanted: Sequence[Any]
    ) -> tuple[list[int], frozenset[Axis], frozenset[Axis]]:
        """Return the lengths of the stand-ins; long axes that the model takes as fixed; and short ones as varying."""
        known = {axis for axes in model.lengths.axes for axis in axes}
        lengths = []
        for name, axes in zip(model.names, model.lengths.axes, strict=True):
            found = {wanted[argument].shape[axis] for argument, axis in axes}
            if len(found) > 1 and not model.only_equal:
                members = ", ".join(f"{self.names[argument]}[{axis}]" for argument, axis in axes)
                raise ProfileError(
                    f"{members} are one length; got {', '.join(map(str, sorted(found)))} for {name}"
                )
            lengths.append(min(found))
        counts = {
            (n, axis): count
            for n, value in enumerate(wanted)
            if is_array(value) and value.size
            for axis, count in enumerate(value.shape)
        }
        long = {axis for axis, count in counts.items() if axis not in known and count > SHORT}
        short = {axis for axis, count in counts.items() if axis in known and count <= SHORT}
        return lengths, frozenset(long), frozenset(short)

    def _unequal(self, model: Model, wanted: Sequence[Any]) -> str:
        for axes in model.lengths.axes if model.only_equal else ():
            if len({wanted[argument].shape[axis] for argument, axis in axes}) > 1:
                members = " and ".join(f"{self.names[argument]}[{axis}]" for argument, axis in axes)
                return f"{members} differ, and it follows a law only where they are equal"
        return ""

    def _unlike(self, model: Model, lengths: Sequence[int]) -> str:
        for small, large in model.below:
            if lengths[small] > lengths[large]:
                return (
                    f"{model.names[small]} is above {model.names[large]}, and was below it in all runs; "
                    "give an example in which it is above"
                )
        return ""

    def _switched(self, model: Model, arrays: Sequence[Any]) -> str:
        asked = sizes([(value.shape, value.dtype) for value in arrays])
        for kind, number, line in self._switches:
            n = ("size", "nbytes", "length").index(kind)
            if model.largest[n] <= number <= asked[n]:
                return f"the code switches at a {kind} of {number:,} ({line}), above all that were tried"
        return ""

    def _small(self, wanted: Sequence[Any], options: Mapping[str, Any], given: int, why: str) -> Peak:
        """Run the function at these very shapes, which are no larger than those learnt from."""
        arrays = [
            small_array(self.examples[n], value.shape, "like").astype(value.dtype)
            if is_array(value)
            else value
            for n, value in enumerate(wanted)
        ]
        try:
            found = run(self.function, arrays, options)[0]
        except Exception as error:  # any: it is the user's function
            return Peak(
                given, 0, 0, cannot_tell=why or f"it fails at this shape ({type(error).__name__}: {error})"
            )
        if not len(found.live):
            return Peak(given, 0, 0, cannot_tell=why)
        results, lines = found.at(int(found.live.argmax()))
        ranked = dict(sorted(lines.items(), key=lambda item: -item[1]))
        return Peak(given, results, found.peak - results, next(iter(ranked), ""), ranked, why)

    def _model(
        self,
        wanted: Sequence[Any],
        options: Mapping[str, Any],
        free: frozenset[Axis] = frozenset(),
        fixed: frozenset[Axis] = frozenset(),
    ) -> Model:
        """Return the laws for some dtypes, short axes and options; learn them if they are not known."""
        examples = list(self.examples)
        for n, value in enumerate(wanted):
            if not is_array(value):
                examples[n] = value
                continue
            example = examples[n]
            shape = tuple(
                count if count <= SHORT else max(old, SHORT + 1)
                for count, old in zip(value.shape, example.shape, strict=True)
            )
            if shape != example.shape or value.dtype != example.dtype:
                examples[n] = small_array(example, shape, "like").astype(value.dtype)
        key = model_key(examples, options, free, fixed)
        if key not in self.models:
            with Progress(name_of(self.function)) as progress:
                self.models[key] = learn(self.function, examples, options, self.names, free, fixed, progress)
        return self.models[key]

    def _tied(self, names: Sequence[str]) -> list[str]:
        groups = dict(zip(self.model.names, self.model.lengths.axes, strict=True))
        return [
            " = ".join(f"{self.names[argument]}[{axis}]" for argument, axis in groups[name]) for name in names
        ]

    def _formula(self, row: int) -> str:
        terms = self.model.laws.terms(row)
        ordered = sorted(terms, key=lambda powers: (-sum(powers), tuple(-p for p in powers)))
        return " + ".join(_term(terms[powers], powers, self.model.names) for powers in ordered) or "0"


def predict(function: Callable[..., Any], *example_arrays: Any, **options: Any) -> Prediction:
    """Learn what a function of arrays needs, by some 20 runs on small arrays.

    Parameters
    ----------
    function
        Any function of NumPy's arrays, or of CuPy's. What it does beside returning, it does in every run.
    example_arrays
        Its arguments. Their dtypes, ranks, values and the order of their lengths are examples. Sizes are chosen, and
        the arrays are never changed.
    options
        Its keywords, passed on as they are.

    Returns
    -------
    An object that tells the peak at any shapes: `Prediction`.

    Notes
    -----
    What C libraries take with malloc beside their arrays is not seen, nor what other processes take. A switch of the
    algorithm at a size beyond those tried cannot be seen either.

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
    return Prediction(function, example_arrays, options)


def _term(factor: Fraction, powers: tuple[int, ...], names: Sequence[str]) -> str:
    product = " ".join(
        name if power == 1 else f"{name}^{power}" for name, power in zip(names, powers, strict=True) if power
    )
    number = f"{factor.numerator:,}" if factor.denominator == 1 else f"{float(factor):,.6g}"
    return f"{number} {product}".strip()
