"""Keep parameters and the state of their update rules out of memory, except while an operator or an update uses them.

::

    forward   ... conv            relu ...    backward   ... conv'   update          relu' ...
    W              |fetched|dropped|                          |fetched        |written|
    momentum                                                         |fetched |written|

A parameter leaves when the next operator begins that does not use it. It is written if anybody but a function of
Chainer's has seen its array since it was fetched, and dropped otherwise, as the file has it. The step waits for these
transfers, so nothing but what one operator uses is in memory, and no schedule is needed for it.

Whoever else reads a parameter or a state (a snapshot, an evaluation, a hook, a second link) gets it: `Home` and
`AwayState` stand where Chainer keeps the arrays, and fetch on the first access. An array that something else refers to
stays in memory, as a later change of it would have to be seen by both.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, MutableMapping
from functools import partial
from typing import Any

import chainer
import numpy as np
from chainer.functions.util.forget import Forget

from ..common.errors import ScheduleError
from ..common.swapping import SwapError, SwapFile
from ..profiler.unbroken import WeakKeys

SMALL = 64 << 10
"""Arrays of fewer bytes stay in memory."""

_REFERENCES = 3
"""Of an array that nothing else refers to: its holder, a local variable, and the argument of `sys.getrefcount`."""


class Home(list[Any]):
    """The list in which a `chainer.Variable` has its array; it fetches the array if that is out."""

    __slots__ = ("fetch", "param", "seen", "swap")

    def __init__(self, swap: ParameterSwap, param: Any) -> None:
        super().__init__(param._data)
        self.swap, self.param = swap, weakref.ref(param)
        self.fetch: Any = None  # reads the array from the file, which has it as it is unless `seen`
        self.seen = True  # by something that may have changed it

    @property
    def array(self) -> Any:
        """The array, if it is in memory."""
        return list.__getitem__(self, 0)

    def __getitem__(self, index: Any) -> Any:
        with self.swap.lock:
            self.swap.bring(self)
            self.seen = True
            return list.__getitem__(self, index)

    def __iter__(self) -> Iterator[Any]:
        yield self[0]

    def __setitem__(self, index: Any, array: Any) -> None:
        with self.swap.lock:
            list.__setitem__(self, index, array)
            self.fetch, self.seen = None, True
            self.swap.is_in(self)


class SwappedParameter(chainer.Parameter):  # type: ignore[misc]
    """A parameter with a `Home`; `cleargrad`, for one, asks whether it has an array, and need not fetch it."""

    @property
    def is_initialized(self) -> bool:
        """Whether there is an array."""
        return is_away(self) or super().is_initialized


class AwayState(MutableMapping[str, Any]):
    """The state of an update rule while its arrays are out; it fetches them when it is accessed."""

    def __init__(self, swap: ParameterSwap, rule: Any) -> None:
        self._swap, self._rule = swap, weakref.ref(rule)
        self.values_in: dict[str, Any] = rule._state
        self.fetch: dict[str, Any] = {}

    def bring(self) -> dict[str, Any]:
        """Fetch the arrays; return the state's own dictionary."""
        with self._swap.lock:
            for name in list(self.fetch):
                self.values_in[name] = self.fetch[name]()
                del self.fetch[name]
            rule = self._rule()
            if rule is not None and rule._state is self:
                rule._state = self.values_in
                self._swap.is_in(rule)
            return self.values_in

    def __getitem__(self, name: str) -> Any:
        return self.bring()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.bring()[name] = value

    def __delitem__(self, name: str) -> None:
        del self.bring()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.bring())

    def __len__(self) -> int:
        return len(self.bring())

    def __reduce__(self) -> Any:
        return dict, (self.bring(),)


def in_memory(param: Any) -> Any:
    """Return a parameter's array, if it has one in memory; it counts as unseen."""
    return param._data.array if isinstance(param._data, Home) else param._data[0]


class ParameterSwap:
    """Moves the parameters of a training out of memory and back.

    Parameters
    ----------
    file
        Where they are while they are out.

    Attributes
    ----------
    lock
        Held while one is moved.
    fetched
        Arrays that were out, and have come back.
    written
        The step's `Written`: asked, before the backward pass, about arrays that leave and that something has seen.
    """

    def __init__(self, file: SwapFile) -> None:
        self._file = file
        self.lock = threading.RLock()
        self.fetched = 0
        self.written: Any = None
        self._failure: str | None = None
        self._stays: str | None = None
        self._in: dict[int, Any] = {}  # homes and update rules whose arrays are in memory, by id
        self._using: list[Any] = []  # parameters, by the operator that runs
        self._unseen: list[Any] = []  # those that nobody has seen before it
        self._alive: dict[int, Any] = {}  # parameters of the step: its graph has their arrays no more
        self._states: WeakKeys[AwayState] = WeakKeys()

    @property
    def reason(self) -> str | None:
        """Why arrays have stayed in memory that were to leave; None: none has."""
        return self._failure or self._stays

    # --- the step -----------------------------------------------------------------------------------------------------

    def begin_step(self, parameters: Iterable[Any]) -> None:
        """Have these parameters out until they are used; those that were read since the last step leave again."""
        for param in parameters:
            if type(param) is chainer.Parameter and type(param._data) is list and _may_leave(param._data[0]):
                param._data, param.__class__ = Home(self, param), SwappedParameter
            if type(param._data) is Home:
                self.is_in(param._data)
                if param.update_rule is not None:
                    self.is_in(param.update_rule)
        self.use(())

    def end_step(self) -> None:
        """Have all parameters out."""
        self.written = None
        self.use(())
        self._alive.clear()
        for holder in self._in.values():
            name = (
                getattr(holder.param(), "name", None) if isinstance(holder, Home) else type(holder).__name__
            )
            self._stays = f"something else refers to the array of {name}, or to a part of it"

    def use(self, variables: Iterable[Any], state: bool = False) -> None:
        """Fetch the parameters among these, perhaps with their state, and let all others go."""
        params = [x for x in variables if swapped(x)]
        with self.lock:
            used = {id(x._data) for x in params}
            used |= {id(x.update_rule) for x in params if state}
            for key in [key for key in self._in if key not in used]:
                holder = self._in[key]
                if self._leave(holder) if isinstance(holder, Home) else self._leave_state(holder):
                    del self._in[key]
            self._using = params
            self._alive.update((id(x), x) for x in params)
            for x in params:
                self.bring(x._data)
                if state and x.update_rule is not None:
                    self.is_in(x.update_rule)
                    if type(x.update_rule._state) is AwayState:
                        x.update_rule._state.bring()
            self._unseen = [] if state else [x for x in params if not x._data.seen]

    def unchanged_by(self, function: Any) -> None:
        """Note that a function has run, for which parameters were fetched: Chainer's own do not change them.

        What the function's hooks, or a holder of an array that it has left, might change counts as changed.
        """
        if (
            type(function).__module__.startswith("chainer.functions.")
            and type(function) is not Forget
            and not chainer.get_function_hooks()
            and not function._n_local_function_hooks
        ):
            for x in filter(swapped, self._unseen):
                array = x._data.array
                x._data.seen = sys.getrefcount(array) > _REFERENCES + (x._node._data is array)

    @property
    def bytes_used(self) -> int:
        """Bytes in memory of the parameters that are in use now, and of their state."""
        total = 0
        for x in filter(swapped, self._using):
            total += int(getattr(x._data.array, "nbytes", 0))
            if id(x.update_rule) in self._in and type(x.update_rule._state) is dict:
                total += sum(a.nbytes for a in x.update_rule._state.values() if isinstance(a, np.ndarray))
        return total

    # --- moving -------------------------------------------------------------------------------------------------------

    def is_in(self, holder: Any) -> None:
        """Note that a home, or an update rule, may have arrays in memory."""
        with self.lock:
            self._in[id(holder)] = holder

    def bring(self, home: Home) -> None:
        """Fetch a parameter that is out."""
        if home.array is None and home.fetch is not None:
            list.__setitem__(home, 0, home.fetch())
            home.seen = False
        if home.array is not None:
            self.is_in(home)

    def _leave(self, home: Home) -> bool:
        """Let a parameter's array go; return whether it went."""
        array, param = home.array, home.param()
        if param is not None and param._node is not None and param._node._data is array:
            param._node._data = None  # it is the parameter's, which the graph asks
        if array is None:
            return True
        if not _may_leave(array) or sys.getrefcount(array) > _REFERENCES:
            home.seen = True
            return False
        if home.seen or home.fetch is None:
            if self.written is not None and param is not None:
                self.written.require_same(param.node, array)
            home.fetch = None  # its range of the file is free
            home.fetch = self._write(array)
        if home.fetch is None:
            return False
        list.__setitem__(home, 0, None)
        return True

    def _leave_state(self, rule: Any) -> bool:
        """Let the large arrays of an update rule's state go; return whether all went."""
        values, away = rule._state, self._states.get(rule)
        if type(values) is not dict:
            return True
        if sys.getrefcount(values) > _REFERENCES + (away is not None and away.values_in is values):
            return False
        if away is None:
            away = self._states[rule] = AwayState(self, rule)
        away.values_in, away.fetch = values, {}
        rule._state = away  # first: an interrupt in between leaves nothing that is read as it is
        all_left = True
        for name in list(values):
            array = values[name]
            if _may_leave(array):
                fetch = self._write(array) if sys.getrefcount(array) <= _REFERENCES else None
                if fetch is None:
                    all_left = False
                else:
                    away.fetch[name], values[name] = fetch, None
        if not away.fetch:
            rule._state = values
        return all_left

    def _write(self, array: Any) -> Any:
        """Write an array to the file; return the function that reads it, None if there is no room."""
        if self._failure is not None:
            return None
        try:
            ticket = self._file.evict(array)
            ticket.wait_evicted()
        except SwapError as error:
            self._failure = str(error)
            return None
        order: Any = "C" if array.flags.c_contiguous else "F"
        return partial(self._read, ticket, partial(np.empty, array.shape, array.dtype, order))

    def _read(self, ticket: Any, empty: Any) -> Any:
        out = empty()
        ticket.start_fetch(out)
        ticket.wait_fetched()
        self.fetched += 1
        return out


def require_swappable(parameters: Iterable[Any]) -> None:
    """Raise unless these parameters can be swapped.

    Raises
    ------
    ScheduleError
        One is not on the host, or Python's reference counts do not say whether something else has an array.
    """
    if sys.version_info >= (3, 14):
        raise ScheduleError(
            "swap_parameters is True; expected Python 3.13 or older, whose reference counts are exact"
        )
    for param in parameters:
        if param.device.xp is not np:
            raise ScheduleError(
                f"swap_parameters is True, and {param.name} is on {param.device}; expected parameters on the host"
            )


def swapped(x: Any) -> bool:
    """Whether a variable's array may be out of memory, and comes when it is read."""
    return isinstance(x, chainer.Parameter) and type(x._data) is Home


def is_away(param: Any) -> bool:
    """Whether a parameter's array is out of memory now."""
    return type(param._data) is Home and param._data.array is None and param._data.fetch is not None


def _may_leave(array: Any) -> bool:
    """Whether an array is large, owns its memory, and is NumPy's."""
    return (
        type(array) is np.ndarray
        and array.nbytes >= SMALL
        and array.base is None
        and array.flags.owndata
        and array.flags.forc
        and array.flags.writeable
        and not array.dtype.hasobject
    )
