"""Run a function of the graph once more: same outputs, bit by bit, and no other effect.

::

    first   y = f.forward(x)      f keeps mask, indexes, ...        statistics and random state change
    later   y = rerun(f, x)       f makes cleared ones again        statistics and random state stay as they are

A *hidden* array is one that a function keeps in its attributes for its backward pass, besides the inputs and outputs
that it retains: max-pooling's ``indexes``, dropout's ``mask``, the scale of a local response normalization. A rerun
leaves every attribute as it was, except that it makes cleared hidden arrays again.

A trial shows if that holds for a given call: `is_idempotent` for the outputs, `rebuildable` for hidden arrays.
Three kinds of functions are never tried: those that draw at random whatever they keep, those that run code which is
not Chainer's (`chainer.functions.forget`, classes of the user; see `trust`), and batch renormalization while it moves
the statistics that it reads. Random numbers that a function has drawn and kept are never cleared.

A rerun takes the seconds of a forward call; each check takes one or a few of them and a comparison of the outputs.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import chainer
import numpy as np
from chainer.function import FunctionAdapter
from chainer.functions import noise
from chainer.functions.activation.rrelu import RReLU
from chainer.functions.loss.negative_sampling import NegativeSamplingFunction
from chainer.functions.normalization.batch_normalization import BatchNormalization
from chainer.functions.normalization.batch_renormalization import BatchRenormalizationFunction
from chainer.functions.normalization.decorrelated_batch_normalization import DecorrelatedBatchNormalization
from chainer.functions.util.forget import Forget

from ..profiler.unbroken import unbroken
from .graph_builder import root_of

HIDDEN_BYTES = 1024
"""Smaller arrays are not worth the bookkeeping."""

PIECE_BYTES = 1 << 20
"""Arrays are compared in pieces of this many bytes."""

NEVER_RUN_AGAIN = (noise.zoneout.Zoneout, NegativeSamplingFunction, Forget)
"""Functions that draw in every forward call, or call unknown code."""

DRAWN: dict[type, frozenset[str]] = {
    noise.dropout.Dropout: frozenset({"mask", "states"}),
    noise.gaussian.Gaussian: frozenset({"eps"}),
    RReLU: frozenset({"r"}),
    noise.simplified_dropconnect.SimplifiedDropconnect: frozenset({"mask"}),
}
"""The attributes with what a random function drew. Kept, they make a rerun exact; cleared, it would draw again."""

STATISTICS: dict[type, tuple[str, ...]] = {
    BatchNormalization: ("running_mean", "running_var"),
    DecorrelatedBatchNormalization: ("running_mean", "running_projection"),
}
"""Running statistics that a forward call changes and does not read: hidden from it in a rerun."""

NOT_HIDDEN = frozenset(
    {
        "class_weight",
        "running_mean",
        "running_var",
        "running_projection",
        "_running_mean",
        "_running_var",
        "_retained_output_data",
        "inputs",
        "outputs",
    }
)
"""Attributes whose arrays are the caller's, or are retained inputs and outputs."""

_PLAIN = frozenset({bool, float, int, str, type(None)})
"""Types of most attributes, none of which holds an array."""

FUNCTION = "_function"
"""Where Chainer's adapter keeps an old-style function, which in turn keeps the hidden arrays."""

_trusted: set[type] = set()


def trust(function_class: type) -> type:
    """Declare that a user's class may be run again, and its inputs updated as soon as its backward step is over.

    Its ``forward`` only makes results and sets attributes, and its ``backward`` reads no parameter but its inputs.

    Parameters
    ----------
    function_class
        A class of the user's: a subclass of ``chainer.FunctionNode`` or ``chainer.Function``.

    Returns
    -------
    type
        The class itself, so that this serves as a decorator.
    """
    _trusted.add(function_class)
    return function_class


def settings() -> dict[str, Any]:
    """Return what a forward call can see of Chainer's configuration now, for a rerun under another one."""
    names = (
        "train",
        "dtype",
        "use_cudnn",
        "cudnn_deterministic",
        "use_ideep",
        "compute_mode",
        "use_cudnn_tensor_core",
    )
    return {name: getattr(chainer.config, name) for name in names if hasattr(chainer.config, name)}


@unbroken
def rerun(function: Any, inputs: Iterable[Any], config: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
    """Run a function's forward call once more.

    Parameters
    ----------
    function
        A `chainer.FunctionNode` that has been applied.
    inputs
        The arrays that it was applied to, or arrays of the same bits and strides.
    config
        What `settings` returned at the first call; the current configuration if not given.

    Returns
    -------
    tuple of array
        The outputs. They belong to the caller; the function retains none of them.
    """
    arrays = tuple(inputs)
    with contextlib.ExitStack() as stack:
        for name, value in {**(config or {}), "enable_backprop": False, "in_recomputing": True}.items():
            stack.enter_context(chainer.using_config(name, value))
        stack.enter_context(chainer.using_device(chainer.backend.get_device_from_array(*arrays)))
        stack.enter_context(_unchanged(function))
        outputs: tuple[Any, ...] = function.forward(arrays)
    return outputs


@contextlib.contextmanager
def _unchanged(function: Any) -> Iterator[None]:
    """Restore every attribute at the end, except for arrays that were cleared and have been made again."""
    holders = [function] if old_style(function) is None else [function, old_style(function)]
    before = [dict(holder.__dict__) for holder in holders]
    own = holders[-1]
    for name in STATISTICS.get(type(own), ()):
        setattr(own, name, None)
    if isinstance(own, BatchRenormalizationFunction):
        own.update_statistics = False
    function._input_indexes_to_retain = function._output_indexes_to_retain = function._output_layouts = None
    is_over = False
    try:
        yield
        is_over = True
    finally:
        for holder, attributes in zip(holders, before, strict=True):
            made = dict(holder.__dict__) if is_over else {}
            holder.__dict__.clear()
            for name, value in attributes.items():
                keeps = name in NOT_HIDDEN or name.endswith("_to_retain") or name == "_output_layouts"
                holder.__dict__[name] = value if keeps else _fill(value, made.get(name))


def _fill(old: Any, new: Any) -> Any:
    """Return the old value, with the new arrays in place of cleared ones."""
    if old is None:
        return new if isinstance(new, chainer.get_array_types()) else None
    if type(old) in (tuple, list) and type(new) is type(old) and len(old) == len(new):
        return type(old)(_fill(a, b) if a is None else a for a, b in zip(old, new, strict=True))
    return old


def is_idempotent(
    function: Any, inputs: Iterable[Any], outputs: Iterable[Any], config: Mapping[str, Any] | None = None
) -> bool:
    """Tell whether a rerun, with all hidden arrays there, gives these outputs and changes nothing.

    Parameters
    ----------
    function, inputs, config
        As for `rerun`.
    outputs
        The arrays that the first forward call returned.

    Returns
    -------
    bool
        True if the outputs are the same bit by bit (values, types, shapes, strides), so are the function's arrays,
        and no random number was drawn from NumPy's or Python's global generators. These are put back in any case.
    """
    return may_run_again(function) and _repeats(function, tuple(inputs), tuple(outputs), (), config)


def rebuildable(
    function: Any,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    names: Iterable[str],
    config: Mapping[str, Any] | None = None,
) -> frozenset[str]:
    """Return which hidden arrays a rerun makes again, bit by bit, once they are cleared together.

    Parameters
    ----------
    function, inputs, outputs, config
        As for `is_idempotent`. The function is left as it was.
    names
        Names that `hidden_arrays` returned.

    Returns
    -------
    frozenset of str
        All that may be cleared together. Empty if the function may not be run again.
    """
    arguments = tuple(inputs), tuple(outputs)
    drawn = DRAWN.get(type(old_style(function) or function), frozenset())
    candidates = [name for name in names if name not in drawn and get_hidden(function, name) is not None]
    if not candidates or not may_run_again(function):
        return frozenset()
    if _repeats(function, *arguments, candidates, config):
        return frozenset(candidates)
    alone = [name for name in candidates if _repeats(function, *arguments, (name,), config)]
    while alone and not _repeats(function, *arguments, alone, config):
        alone.pop()
    return frozenset(alone)


def may_run_again(function: Any) -> bool:
    """Return what is known of the class, before any trial."""
    own = old_style(function) or function
    if isinstance(own, NEVER_RUN_AGAIN) or function._is_chainerx_fallback_mode:
        return False
    if isinstance(own, BatchRenormalizationFunction) and own.update_statistics:
        return False
    return is_known(function)


def is_known(function: Any) -> bool:
    """Whether a function's class is Chainer's, or the program vouches for it (`trust`)."""
    own = type(old_style(function) or function)
    return own in _trusted or own.__module__.startswith("chainer.")


@unbroken
def _repeats(
    function: Any,
    inputs: tuple[Any, ...],
    outputs: tuple[Any, ...],
    cleared: Iterable[str],
    config: Mapping[str, Any] | None,
) -> bool:
    """Run again without the arrays named; compare; leave function and generators as they were."""
    before = held_arrays(function)
    names = tuple(cleared)
    kept = [*inputs, *(array for name, array in before.items() if name not in names)]
    digests = [_digest(array) for array in kept]
    with _same_random() as drew:
        try:
            for name in names:
                set_hidden(function, name, None)
            again = rerun(function, inputs, config)
        except Exception:  # any: a function that cannot run without what was cleared; no signal's
            return False
        else:
            after = held_arrays(function)
            return (
                len(again) == len(outputs)
                and all(bit_equal(a, b) for a, b in zip(again, outputs, strict=True))
                and before.keys() == after.keys()
                and all(bit_equal(array, after[name]) for name, array in before.items())
                and digests == [_digest(array) for array in kept]  # nor was any of them written into
                and not drew()
            )
        finally:
            for name in names:
                set_hidden(function, name, before[name])


@contextlib.contextmanager
def _same_random() -> Iterator[Any]:
    """Yield a function that tells whether random numbers were drawn; restore the generators at the end."""
    numpy_state, python_state = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002 (Chainer's)
    before = pickle.dumps(numpy_state)

    def drew() -> bool:
        now = pickle.dumps(np.random.get_state(legacy=False))  # noqa: NPY002
        return now != before or random.getstate() != python_state

    try:
        yield drew
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


def held_arrays(function: Any, least: int = 0) -> dict[str, Any]:
    """Return every array of so many bytes among a function's attributes, by name, those of the caller included.

    What a function holds before it is applied is the caller's (class weights, a mask that was given): pass it on to
    `hidden_arrays` as `but`.
    """
    found: dict[str, Any] = {}
    arrays = chainer.get_array_types()
    for holder, prefix in ((function, ""), (old_style(function), FUNCTION + ".")):
        for name, value in () if holder is None else holder.__dict__.items():
            if type(value) in _PLAIN or name in NOT_HIDDEN:
                continue
            if isinstance(value, arrays) and value.nbytes >= least:
                found[prefix + name] = value
            elif type(value) in (tuple, list):
                for index, item in enumerate(value):
                    if isinstance(item, arrays) and item.nbytes >= least:
                        found[f"{prefix}{name}.{index}"] = item
    return found


def hidden_arrays(function: Any, but: Iterable[Any] = (), least: int = HIDDEN_BYTES) -> dict[str, Any]:
    """Return the hidden arrays of a function that has been applied.

    Parameters
    ----------
    function
        A `chainer.FunctionNode`.
    but
        Arrays that do not count, nor views of them: the function's inputs and outputs, and what it held before.
    least
        Bytes that count.

    Returns
    -------
    dict
        The arrays by their names for `get_hidden` and `set_hidden`: an attribute's, or ``attribute.index`` for an
        array in a tuple or list; an old-style function's start with ``_function.``.
    """
    held = held_arrays(function, least)
    if not held:
        return held
    others = [*but, *(function._retained_output_data or ()), *(node.data for node in function.inputs or ())]
    known = {id(root_of(array)) for array in others if array is not None}
    return {name: array for name, array in held.items() if id(root_of(array)) not in known}


def get_hidden(function: Any, name: str) -> Any:
    """Return a hidden array by its name; None if it has been cleared."""
    holder, attribute, index = _place(function, name)
    value = getattr(holder, attribute)
    return value if index is None or value is None else value[index]


def set_hidden(function: Any, name: str, array: Any) -> None:
    """Set a hidden array by its name; with None, clear it."""
    holder, attribute, index = _place(function, name)
    if index is not None:
        items = list(getattr(holder, attribute))
        items[index] = array
        array = type(getattr(holder, attribute))(items)
    setattr(holder, attribute, array)


def _place(function: Any, name: str) -> tuple[Any, str, int | None]:
    """Return the object, its attribute, and the index in a tuple or list that a name stands for."""
    holder = function
    if name.startswith(FUNCTION + "."):
        holder, name = old_style(function), name[len(FUNCTION) + 1 :]
    attribute, _, index = name.partition(".")
    return holder, attribute, int(index) if index else None


def old_style(function: Any) -> Any:
    """Return the old-style function that an adapter wraps; None for any other node."""
    return function.function if isinstance(function, FunctionAdapter) else None


def bit_equal(a: Any, b: Any) -> bool:
    """Tell whether two arrays have the same type, shape, strides and bits: NaNs by their payload, zeros by their sign.

    O(n), with temporaries of `PIECE_BYTES` at most for contiguous arrays.
    """
    if a is b:
        return True
    if type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape or _strides(a) != _strides(b):
        return False
    if a.dtype.hasobject:
        return False
    first, second = _bytes_of(a), _bytes_of(b)
    return all(
        bool((first[start : start + PIECE_BYTES] == second[start : start + PIECE_BYTES]).all())
        for start in range(0, first.size, PIECE_BYTES)
    )


def _digest(array: Any) -> bytes:
    """Return a checksum of an array's bits."""
    return hashlib.blake2b(
        memoryview(_bytes_of(chainer.backends.cuda.to_cpu(array))), digest_size=16
    ).digest()


def _strides(array: Any) -> tuple[int, ...]:
    """Strides of the axes longer than one: the strides of the others mean nothing."""
    if array.size == 0:
        return ()
    return tuple(stride for stride, length in zip(array.strides, array.shape, strict=True) if length != 1)


def _bytes_of(array: Any) -> Any:
    """Return the elements' bytes in one dimension; a copy only if the array is not contiguous."""
    xp = chainer.backend.get_array_module(array)
    if array.flags.f_contiguous:
        array = array.T
    return xp.ascontiguousarray(array).reshape(-1).view(np.uint8)
