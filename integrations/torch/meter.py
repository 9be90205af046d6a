"""Measure the live peak of a real run: each storage counts from the operator that made it until it is freed.

A dispatch mode sees each operator's arguments and results. An argument that no operator made is older, and does not
count. A weak reference to each storage tells when it is freed::

    operator      its arguments and results are alive         live = storages made and not gone, in bytes
    between two   Python lets go of what is no longer named
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .seams import TorchDispatchMode, key_of, pytree


@dataclass(frozen=True)
class Measurement:
    """The bytes that a run had alive, without those that existed before it.

    Attributes
    ----------
    result
        The result of the call.
    peak
        Most bytes alive at any operator.
    live
        Bytes alive right after each operator that ran.
    """

    result: Any
    peak: int
    live: tuple[int, ...]


def measure(function: Callable[..., Any], *inputs: Any) -> Measurement:
    """Call a function, for instance a graph module, and count the bytes that are alive at each operator.

    Memory that operators request and release within themselves is not seen.
    """
    meter = Meter()
    with meter:
        result = function(*inputs)
    return Measurement(result, max(meter.live, default=0), tuple(meter.live))


class Meter(TorchDispatchMode):  # type: ignore[misc]
    """Counts while it is entered; it may be entered again, and goes on."""

    supports_higher_order_operators = True  # random ones that PyTorch has draw again

    def __init__(self) -> None:
        super().__init__()
        self.live: list[int] = []
        # By its address, which stays taken while there is a weak reference: a storage, and its bytes, 0 of older ones.
        self.known: dict[int, tuple[StorageWeakRef, int]] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Count what compiled code runs."""
        return True

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
        """Count the storages of tensors, with their bytes if an operator has just made them."""
        for tensor in pytree.tree_leaves(tree):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if key_of(storage) not in self.known:
                    self.known[key_of(storage)] = (StorageWeakRef(storage), storage.nbytes() if made else 0)
