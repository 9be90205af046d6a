"""NumPy's arrays for pool_program."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from stowplan import NumpyPool

from .pool_program import Backend, make_pool


class NumpyBackend(Backend):
    """A NumpyPool, entered for as long as a request takes, where it does not serve already."""

    resizes = True
    zeroes = True
    installs = True

    def __init__(self, file: Path | None = None, **options: Any) -> None:
        defaults = {"warmup": 0, "small": 0, "planning_share": math.inf}
        self.pool = make_pool(NumpyPool, file, **{**defaults, **options})

    def allocate(self, size: int, zeroed: bool) -> np.ndarray:
        with self.pool.serving():
            return np.zeros(size, np.uint8) if zeroed else np.empty(size, np.uint8)

    def address(self, array: np.ndarray) -> int:
        return int(array.__array_interface__["data"][0])

    def asked(self, size: int) -> int:
        return max(size, 1)

    def resize(self, array: np.ndarray, size: int) -> None:
        with self.pool:
            array.resize(size, refcheck=False)
