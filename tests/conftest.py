"""For all tests: hypothesis without deadlines, as they are assertions about time; Chainer, and Chainer on CUDA."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from stowplan.compat import enable_chainer
from stowplan.errors import MissingDependencyError

settings.register_profile("stowplan", deadline=None)
settings.load_profile("stowplan")


def require_chainer() -> Any:
    """Return Chainer; skip where it is not installed."""
    try:
        enable_chainer()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    import chainer

    return chainer


@pytest.fixture
def chainer() -> Any:
    """Chainer; skips where it is not installed."""
    return require_chainer()


@pytest.fixture
def chainer_on_cuda() -> Any:
    """Chainer, with the CUDA libraries that it needs; skips where they are not found."""
    chainer = require_chainer()
    from chainer.backends import cuda

    if not cuda.available:
        pytest.skip(f"Chainer finds no CUDA libraries: {cuda._resolution_error}")
    return chainer
