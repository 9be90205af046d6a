"""For all tests: hypothesis without deadlines, as they are assertions about time; and Chainer on CUDA."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from stowplan.compat import enable_chainer
from stowplan.errors import MissingDependencyError

settings.register_profile("stowplan", deadline=None)
settings.load_profile("stowplan")


@pytest.fixture
def chainer() -> Any:
    """Chainer, with the CUDA libraries that it needs."""
    try:
        enable_chainer()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    import chainer
    from chainer.backends import cuda

    if not cuda.available:
        pytest.skip(f"Chainer finds no CUDA libraries: {cuda._resolution_error}")
    return chainer
