"""Where the command ``stowplan`` and ``python -m stowplan`` begin: ``stowplan run`` starts its script without Click."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command of ``sys.argv``, and exit with its status."""
    if sys.argv[1:2] == ["run"]:
        from .commands.run import run

        sys.exit(run(sys.argv[2:]))
    from .main import main as command

    command(prog_name="stowplan")
