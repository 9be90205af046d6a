"""A million operations of random programs, in processes of their own, where no coverage slows them down: see soak."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("pool", "operations"), [("numpy", 500_000), ("cupy", 500_000), ("cupy --unmarked", 100_000)]
)
def test_many_operations(pool: str, operations: int) -> None:
    if "cupy" in pool and importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed; expected: pip install 'stowplan[cupy]'")
    command = [
        sys.executable,
        "-m",
        "tests.properties.soak",
        "--pool",
        *pool.split(),
        f"--operations={operations}",
    ]
    done = subprocess.run(
        [*command, "--seed", "20181207"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["operations"] >= operations
    assert min(counts["replayed"], counts["guests"]) > 100
    assert counts["reoptimizations"] > (0 if "--unmarked" in pool else 100)
    assert (counts["failures"] > 100) == ("cupy" in pool)
