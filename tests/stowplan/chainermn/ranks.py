"""Runs a script on several MPI ranks of this machine, over loopback and shared memory, for a bounded time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT = 90.0
"""Seconds; a run takes a few, and many more on a machine that is busy."""

MISSING = [name for name in ("chainer", "mpi4py") if find_spec(name) is None]
needs_mpi = pytest.mark.skipif(
    bool(MISSING) or shutil.which("mpiexec", path=str(Path(sys.executable).parent)) is None,
    reason=f"missing: {', '.join(MISSING) or 'mpiexec of Open MPI'}; expected: pip install 'stowplan[chainer,mpi]'",
)


def run_ranks(script: Path, *args: str, ranks: int = 2, timeout: float = TIMEOUT) -> str:
    """Return what the ranks print; fail with it if one of them does, or takes too long. Nothing of them is left."""
    status, out = _run(script, *args, ranks=ranks, timeout=timeout)
    assert status == 0, f"{script.name} {args} exited with {status}:\n{out}"
    return out


def run_ranks_that_die(script: Path, *args: str, ranks: int = 2, timeout: float = TIMEOUT) -> None:
    """Run ranks of which one is killed; fail if that is not so, or if the others take too long to end."""
    status, out = _run(script, *args, ranks=ranks, timeout=timeout)
    assert status != 0
    assert "signal 9" in out, out


def _run(script: Path, *args: str, ranks: int, timeout: float) -> tuple[int, str]:
    process = subprocess.Popen(
        [
            str(Path(sys.executable).with_name("mpiexec")),
            *("-n", str(ranks), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"),
            # By mpi4py, which ends all ranks when one of them raises.
            *(sys.executable, "-W", "ignore", "-m", "mpi4py", str(script), *args),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1",  # ranks may be more than cores
        },
    )
    try:
        out, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpiexec ends its ranks
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        _kill_session(process.pid)
        out, _ = process.communicate()
        pytest.fail(f"{script.name} {args} took more than {timeout} s:\n{out}")
    finally:
        _kill_session(process.pid)
    return process.returncode, out


def _kill_session(session: int) -> None:
    """Kill what is left: ranks have process groups of their own, but belong to the session of their mpiexec."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pid = int(folder.name)
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
