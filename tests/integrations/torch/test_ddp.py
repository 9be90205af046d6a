"""Two processes that train together: a compiled model within a budget, as plain PyTorch trains it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

from .ddp import __file__ as script


@pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="gloo is not in this build"
)
def test_ranks_stay_equal_to_plain_pytorch_and_peaks_are_as_said(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert all(row["same"] for row in rows)
    assert rows[0]["digest"] == rows[1]["digest"]
    for row in rows:
        assert row["recomputed"] > 0
        assert abs(row["measured"] - max(row["said"])) <= 0.02 * row["measured"]
        assert "distributed (DistributedDataParallel)" in row["refused"]
        assert "stowplan.torch.compile_backend" in row["refused"]
