"""Programs on the simulated device that run in a process of their own, with variables of their own."""

from __future__ import annotations

import os
import subprocess
import sys


def run(program: str, *, fails: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program's text; check that it succeeds, or that it fails."""
    command = [sys.executable, "-W", "ignore", "-c", program]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode != 0) == fails, f"returned {done.returncode}\n{done.stdout}{done.stderr}"
    return done
