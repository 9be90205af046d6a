"""Random programs for a few seconds, by a new seed each time, in processes that no coverage slows down: see soak.

``make soak`` goes on for longer.
"""

from __future__ import annotations

import importlib.util
import json

import pytest

from ..children import python

OPERATIONS = 2_000


@pytest.mark.parametrize("pool", ["numpy", "cupy", "native --process", "torch-cuda"])
def test_many_operations(pool: str) -> None:
    if pool.startswith(("cupy", "torch-cuda")) and importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed; expected: pip install 'stowplan[cupy]'")
    arguments = ["--pool", *pool.split(), f"--operations={OPERATIONS}"]
    done = python("-m", "tests.properties.soak", *arguments)
    print(done.stdout)  # with the seed, should anything below not hold
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["operations"] >= OPERATIONS
    assert counts["failures"] == 0 or "numpy" not in pool  # whether any comes is a matter of the seed
    assert min(counts["replayed"], counts["guests"], counts["plans"]) > 0  # few seeds reoptimize nothing
