"""Runs a script on several MPI ranks of this machine, over loopback and shared memory, for a bounded time."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from experiments.measures.ranks import launch

TIMEOUT = 90.0
"""Seconds; a run takes a few, and many more on a machine that is busy."""

MISSING = [name for name in ("chainer", "mpi4py") if find_spec(name) is None]
needs_mpi = pytest.mark.skipif(
    bool(MISSING) or shutil.which("mpiexec", path=str(Path(sys.executable).parent)) is None,
    reason=f"missing: {', '.join(MISSING) or 'mpiexec of Open MPI'}; expected: pip install 'stowplan[chainer,mpi]'",
)


def run_ranks(script: Path, *args: str) -> str:
    """Return what two ranks print; fail with it if one of them does, or takes too long. Nothing of them is left."""
    # By mpi4py, which ends all ranks when one of them raises.
    program = [sys.executable, "-W", "ignore", "-m", "mpi4py", str(script), *args]
    try:
        status, printed, errors = launch(2, program, TIMEOUT)
    except RuntimeError as error:
        pytest.fail(str(error))
    assert status == 0, f"{script.name} {args} exited with {status}:\n{printed}{errors}"
    return printed + errors
