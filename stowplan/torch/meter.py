"""The live peak of what really ran: every storage that an operator made, from that operator on until nobody has it.

A dispatch mode sees each operator's arguments and results. What comes in as an argument without having been made there
is older, and not counted. A weak reference to each storage tells when it is gone::

    operator      its arguments and results are alive         live = storages made and not gone, in bytes
    between two   Python lets go of what is no longer named
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Measurement:
    """What a run had alive, in bytes, without what was there before it.

    Attributes
    ----------
    result
        What was returned.
    peak
        The most that was alive at any operator.
    live
        At each operator that ran, what was alive when it had just returned.
    """

    result: Any
    peak: int
    live: tuple[int, ...]


def measure(function: Callable[..., Any], *inputs: Any) -> Measurement:
    """Call a function, for instance a graph module, and count the bytes that are alive at each operator.

    Memory that operators ask for and release within themselves is not seen.
    """
    meter = _Meter()
    with meter:
        result = function(*inputs)
    return Measurement(result, max(meter.live, default=0), tuple(meter.live))


class _Meter(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.live: list[int] = []
        # By its address, which stays taken while there is a weak reference: a storage, and its bytes, 0 of older ones.
        self.known: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.known = {key: entry for key, entry in self.known.items() if not entry[0].expired()}
        self.note((args, kwargs), made=False)
        result = func(*args, **(kwargs or {}))
        self.note(result, made=True)
        self.live.append(sum(size for _, size in self.known.values()))
        return result

    def note(self, tree: Any, *, made: bool) -> None:
        for tensor in pytree.tree_leaves(tree):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.known:
                    self.known[storage._cdata] = (StorageWeakRef(storage), storage.nbytes() if made else 0)
