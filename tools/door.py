"""Run what README says, as typed, in a fresh clone and a fresh environment: ``make door``.

The commands of its block of installation come first, with the interpreter that runs this; then each block of Python, in
a process of its own in an empty folder. Those that need PyTorch are run once PyTorch is installed as README says. It
stops at the first that fails, with exit status 1. Minutes; ``--skip make`` leaves out commands that begin so.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "pip install '.[torch]'"


def commands(readme: str) -> list[str]:
    """Return the indented lines of a README that are commands, without what stands behind ``#``."""
    return [line.partition("  #")[0].strip() for line in readme.splitlines() if line.startswith("    ")][:4]


def snippets(readme: str) -> list[str]:
    """Return a README's blocks of Python."""
    return re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)


def steps(readme: str) -> Iterator[tuple[str, list[str] | str]]:
    """Yield what is run, in order: its title, and a shell's command, or Python's arguments."""
    for command in commands(readme):
        yield command, command
    code = snippets(readme)
    later = [text for text in code if "torch" in text]
    for text in (*(text for text in code if text not in later), TORCH, *later):
        yield text.splitlines()[0], text if text == TORCH else ["-c", text]


def main() -> int:
    """Run all; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--skip", action="append", default=[], help="leave out commands that begin so")
    skipped = tuple(parser.parse_args().skip)
    with tempfile.TemporaryDirectory() as folder:
        clone, empty, environment = (Path(folder) / name for name in ("clone", "empty", "environment"))
        empty.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        variables = {**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
        for title, run in steps((clone / "README.md").read_text()):
            if isinstance(run, str) and skipped and run.startswith(skipped):
                continue
            print(f"== {title}", flush=True)
            words = (
                ["bash", "-c", run] if isinstance(run, str) else [str(environment / "bin" / "python"), *run]
            )
            where = clone if isinstance(run, str) else empty
            done = subprocess.run(words, cwd=where, env=variables, stdin=subprocess.DEVNULL, check=False)
            if done.returncode:
                print(f"stowplan: {title!r} failed with exit status {done.returncode}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
