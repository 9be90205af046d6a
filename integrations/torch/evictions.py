"""Tensors of a scheduled step go to a file, and come back before they are read: what the graph module calls.

::

    kept = stowplan_evict(x, t)    after its last use in forward: writing begins, in a thread of its own
    leave(kept, x, t)              the write is over, and nothing names x any more
    raw = fetch(kept)              memory of that size; reading begins
    both = arrive(kept, raw)       the read is over: tensors like x and t, on that memory
    x_back = both[0]

A tensor that the disk has no room for stays in memory, and so do all later ones: the step goes on.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from ..scheduling import Rates
from ..swapping import SwapError, SwapFile

EVICT = "stowplan_evict"
"""Name of the submodule that evicts."""

RATES = Rates(swap=0.4 * 2**30)
"""Half of what a disk writes and reads: the thread that does so waits for Python's lock, and takes time of a core."""


class Evict(torch.nn.Module):  # type: ignore[misc]
    """Evicts tensors of the host to one file, which is made by the first.

    Attributes
    ----------
    failure
        Why tensors stay in memory; None: they do not.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        super().__init__()
        self._folder = folder
        self._file: SwapFile | None = None
        self.failure: str | None = None

    def forward(self, *names: torch.Tensor) -> Evicted:
        """Begin to write a storage; the names are all tensors on it that are read later."""
        kept = Evicted(names)
        if self.failure is None and kept.can_go:
            try:
                if self._file is None:
                    self._file = SwapFile(self._folder)
                raw = torch.empty(0, dtype=torch.uint8)
                raw.set_(names[0].untyped_storage(), 0, (kept.bytes,), (1,))
                kept.ticket = self._file.evict(raw.numpy())
                kept.evict = self
            except SwapError as error:
                self.failure = str(error)
        if kept.ticket is None:
            kept.names = names
        return kept


class Evicted:
    """A storage in the file, and how tensors lie on it; or the tensors, if they have stayed."""

    def __init__(self, names: tuple[torch.Tensor, ...]) -> None:
        self.names: tuple[torch.Tensor, ...] | None = None
        self.ticket: Any = None
        self.evict: Evict | None = None
        self.bytes = names[0].untyped_storage().nbytes()
        place = names[0].untyped_storage().data_ptr()
        self.can_go = all(
            one.untyped_storage().data_ptr() == place and not (one.is_conj() or one.is_neg()) for one in names
        )
        self.layouts = [(one.dtype, one.storage_offset(), one.shape, one.stride()) for one in names]


def leave(kept: Evicted, *names: torch.Tensor) -> None:
    """Wait until a storage is written; its names end with this call."""
    if kept.ticket is not None:
        try:
            kept.ticket.wait_evicted()
        except SwapError as error:  # the ticket holds what it could not write
            assert kept.evict is not None
            kept.evict.failure = str(error)


def fetch(kept: Evicted) -> torch.Tensor | None:
    """Begin to read a storage into new memory, which is returned; None if it has stayed."""
    if kept.ticket is None:
        return None
    raw = torch.empty(kept.bytes, dtype=torch.uint8)
    kept.ticket.start_fetch(raw.numpy())
    return raw


def arrive(kept: Evicted, raw: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """Wait until a storage is read; return the tensors on it.

    Raises
    ------
    SwapError
        It could not be read.
    """
    if raw is None:
        assert kept.names is not None
        return kept.names
    kept.ticket.wait_fetched()
    kept.ticket.close()
    storage = raw.untyped_storage()
    return tuple(
        torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)
        for dtype, offset, shape, stride in kept.layouts
    )
