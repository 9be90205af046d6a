"""Random programs in which a pool never has two free chunks of one size to choose between."""

from __future__ import annotations

from typing import Any

import numpy as np

from stowplan.insight.pool_models import POOL_MODELS

FREE = -1


def program_without_ties(name: str, seed: int, length: int = 1000) -> list[list[int]]:
    """Return rows ``[block, size]``, a size of -1 for a free, for one of `POOL_MODELS`.

    Which of two equal chunks a pool takes depends on addresses: of Python objects in CuPy, of reservations in others.
    And so may what it reserves later. Here the model is asked before each request, and another size is drawn where
    there would be a tie.
    """
    rng = np.random.default_rng(seed)
    pool: Any = POOL_MODELS[name]()
    live: dict[int, int] = {}
    program: list[list[int]] = []
    while len(program) < length:
        if rng.random() < 0.52:
            size = int(2 ** rng.uniform(0, 24)) if rng.random() < 0.97 else 0
            rounded = -(-size // 512) * 512
            heap, best = pool._heap_of(rounded), pool._best(rounded)
            if size and best and len(heap.ties(best)) > 1:
                continue
            block = len(program)
            live[block] = pool.malloc(size)
            program.append([block, size])
        elif live:
            block = list(live)[rng.integers(len(live))]
            pool.free(live.pop(block))
            program.append([block, FREE])
    return program
