"""Runs a Python program on the simulated device: ``python -m tests.device.simulated script.py arguments``.

Everything after the module's name goes to Python, so ``-m package`` and ``-c code`` work as well. The libraries are
built on first use. See `docs/device.rst` for the variables ``SIMHIP_...``, which choose the device's memory and more.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import libraries

BUILD = Path(__file__).resolve().parents[2] / "build"


def out() -> Path:
    """Return the folder of what is built for the build of CuPy that is installed."""
    return BUILD / ("device-cuda" if libraries.wheel().for_cuda else "device")


def environment(out: Path) -> dict[str, str]:
    """Build what is missing, and return the environment in which CuPy finds the simulated device."""
    libraries.build(out)
    library = str(out / "lib")
    others = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path and path != library]
    return {
        "OPENBLAS_NUM_THREADS": "1",  # sums in the same order on every machine
        **(
            {"SIMHIP_GIL": "0"} if libraries.wheel().for_cuda else {}
        ),  # CuPy 12 records events with the GIL held
        **os.environ,
        "SIMHIP_HOME": str(out),
        "ROCM_HOME": str(out),
        "CUDA_PATH": str(out),
        "LD_LIBRARY_PATH": ":".join([library, *others]),
        "PATH": f"{out / 'bin'}:{os.environ.get('PATH', os.defpath)}",
        "CUPY_CACHE_DIR": str(out / "kernels" / "cupy"),
        "CUPY_ACCELERATORS": "",  # CUB's kernels are compiled into CuPy for a device
    }


def main() -> None:
    """Become Python with the rest of the command line, on the simulated device."""
    try:
        variables = environment(out())
    except libraries.SetUpError as error:
        sys.exit(f"stowplan: {error}")
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], variables)


if __name__ == "__main__":
    main()
