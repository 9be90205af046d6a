"""Programs in interpreters of their own: the one way in which tests start them; README's are among them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

README = (ROOT / "README.md").read_text(encoding="utf-8")
README_CODE = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)

Done = subprocess.CompletedProcess[str]


def python(
    *arguments: object,
    folder: Path = ROOT,
    stdin: str | None = None,
    timeout: float = 600,
    **environment: str,
) -> Done:
    """Run Python in a folder, with this checkout's stowplan and tests, and an environment with some changes."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def stowplan(*arguments: object, folder: Path, **environment: str) -> Done:
    """Run the command line as a program."""
    return python("-m", "stowplan", *arguments, folder=folder, **environment)


def printed(*arguments: object, folder: Path = ROOT, **environment: str) -> str:
    """Return what a run prints that ends well."""
    done = python(*arguments, folder=folder, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def end_quietly(program: str) -> None:
    """Run a program that has to end by itself, successfully and without a word on stderr."""
    done = python("-W", "ignore", "-c", program)
    assert (done.returncode, done.stderr) == (0, "")
