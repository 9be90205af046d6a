"""A million operations of random programs: see soak."""

from __future__ import annotations

import pytest

from .soak import soak


def test_numpy_pool() -> None:
    from .numpy_backend import NumpyBackend

    counts = soak(NumpyBackend, 500_000, seed=20181207)
    assert min(counts["replayed"], counts["guests"], counts["reoptimizations"]) > 100


def test_cupy_pool() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed; expected: pip install 'stowplan[cupy]'")
    from .cupy_backend import CupyBackend

    counts = soak(CupyBackend, 500_000, seed=20181207)
    assert min(counts["replayed"], counts["guests"], counts["reoptimizations"], counts["failures"]) > 100
