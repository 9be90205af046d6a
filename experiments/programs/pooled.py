"""Run a script of PyTorch's through `stowplan.TorchPool`, steps told by its optimizer: ``pooled STATS SCRIPT ...``."""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import asdict
from pathlib import Path

from stowplan import TorchPool


def main(stats: str, script: str, *arguments: str) -> None:
    """Run the script as the main program, and write what the pool counted."""
    sys.argv = [script, *arguments]
    pool = TorchPool(auto_step=True)
    pool.install()
    runpy.run_path(script, run_name="__main__")
    Path(stats).write_text(json.dumps({"torch": {**asdict(pool.stats), "requests": pool.stats.requests}}))


if __name__ == "__main__":
    main(*sys.argv[1:])
