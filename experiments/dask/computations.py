"""The computations: each makes its data and returns a lazy result, the same in each round; none knows of stowplan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Computation:
    """A computation.

    Attributes
    ----------
    name
        The function's name.
    title
        For tables.
    build
        From a size to a Dask array.
    size, quick
        For measuring, and one that takes a tenth of a second.
    """

    name: str
    title: str
    build: Callable[[int], Any]
    size: int
    quick: int


def cholesky(size: int) -> Any:
    """Decompose a matrix of (4 size, 4 size) in blocks of (size, size), float64."""
    data = da.random.default_rng(1).standard_normal((4 * size, 4 * size), chunks=(size, size))
    return da.linalg.cholesky(data @ data.T + 4 * size * da.eye(4 * size, chunks=size), lower=True)


def filtered(size: int) -> Any:
    """Filter 64 frames of (size, size), float32, in space and time, and take each frame's mean: in blocks of 8."""
    frames = da.random.default_rng(2).random((64, size, size), chunks=(8, size, size), dtype=np.float32)
    smooth = frames.map_overlap(_sharpen_edges, depth=1, boundary="reflect", dtype=frames.dtype)
    return smooth.mean(axis=(1, 2))


def _sharpen_edges(frames: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    smooth = frames
    for axis in range(3):
        smooth = 0.25 * np.roll(smooth, 1, axis) + 0.5 * smooth + 0.25 * np.roll(smooth, -1, axis)
    edges = np.abs(frames - smooth)
    return np.where(edges > 0.3, smooth, frames + 0.1 * edges)


def climate(size: int) -> Any:
    """Reduce 96 months of (size, 2 size), float64, to the spread of their anomalies, as xarray's ``groupby`` would."""
    measured = 280 + 20 * da.random.default_rng(3).standard_normal((96, size, 2 * size), chunks=(12, -1, -1))
    months = da.where(measured < 230, np.nan, measured).reshape((8, 12, size, 2 * size))
    anomalies = months - da.nanmean(months, axis=0)
    return da.nanstd(anomalies, axis=(0, 1)) + da.nanmax(anomalies**2, axis=(0, 1))


COMPUTATIONS = (
    Computation("cholesky", "Cholesky decomposition in blocks", cholesky, 512, 128),
    Computation("filtered", "rolling filter of images", filtered, 512, 64),
    Computation("climate", "reductions of a climate", climate, 180, 30),
)
