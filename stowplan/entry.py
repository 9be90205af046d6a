"""Where the command ``stowplan`` and ``python -m stowplan`` begin.

``stowplan run SCRIPT ...`` without further options starts the script at once: to import the command line's library
takes as long as a tenth of NumPy. All else is the command line's (cli.py), bad input included.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command of ``sys.argv``, and exit with its status."""
    words = sys.argv[1:]
    module = words[1:2] == ["-m"]
    target = words[1 + module : 2 + module]
    if words[:1] != ["run"] or not target or target[0].startswith("-"):
        from .cli import main as command

        command(prog_name="stowplan")
    sys.exit(_run(target[0], words[2 + module :], module=module))


def _run(target: str, arguments: list[str], *, module: bool) -> int:
    from .errors import StowplanError
    from .scripts import Script
    from .scripts.serving import run_served

    try:
        return run_served(Script(target, module=module), arguments)
    except (StowplanError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
