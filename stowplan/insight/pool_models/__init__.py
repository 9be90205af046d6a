"""Online pools, as models: what would one that cannot see the future have reserved for the same requests.

A model keeps the books of a pool and touches no memory. `replay` drives it with the requests of a step, over and over,
as a training loop would::

    use = replay(requests(problem), POOL_MODELS["cupy"]())
    use.reserved_peak / use.live_peak

======================  =============================================================
``POOL_MODELS``         pool
======================  =============================================================
``cupy``                CuPy's ``MemoryPool``
``pytorch``             PyTorch's ``CUDACachingAllocator``
``pytorch-expandable``  the same with ``expandable_segments:True``
``rmm``                 RMM's ``pool_memory_resource``
``free-lists``          one free list per size: Chainer 1
``none``                no pool
======================  =============================================================

All of these are pools of devices. The host's C library is no model: ``malloc`` measures it (``replay_malloc``), in a
process of its own (``malloc_child``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .cupy import CupyPoolModel
from .heap import Books
from .malloc import replay_malloc
from .plain import FreeListsModel, NoPoolModel
from .pytorch import PytorchExpandablePoolModel, PytorchPoolModel
from .replay import Pool, PoolUse, Requests, replay, requests
from .rmm import RmmPoolModel

__all__ = [
    "POOL_MODELS",
    "CupyPoolModel",
    "FreeListsModel",
    "NoPoolModel",
    "Pool",
    "PoolUse",
    "PytorchExpandablePoolModel",
    "PytorchPoolModel",
    "Requests",
    "RmmPoolModel",
    "replay",
    "replay_malloc",
    "requests",
]

POOL_MODELS: dict[str, Callable[[], Books[Any]]] = {
    "cupy": CupyPoolModel,
    "pytorch": PytorchPoolModel,
    "pytorch-expandable": PytorchExpandablePoolModel,
    "rmm": RmmPoolModel,
    "free-lists": FreeListsModel,
    "none": NoPoolModel,
}
