"""Where the command ``stowplan`` and ``python -m stowplan`` begin.

``stowplan run [-m] [--json] [--stats FILE] SCRIPT ...`` starts the script at once: to import the command
line's library takes as long as a tenth of NumPy. All else is the command line's (main.py), help and bad input included.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

_OPTIONS = {"-m", "--json", "--stats", "--step-function", "--auto-step"}
"""Of ``stowplan run``: where one of them stands among the script's arguments, the command line says so."""


def main() -> None:
    """Run the command of ``sys.argv``, and exit with its status."""
    plain = plain_run(sys.argv[1:])
    if plain is None:
        from .main import main as command

        command(prog_name="stowplan")
    else:
        sys.exit(_run(**plain))


def plain_run(words: Sequence[str]) -> dict[str, Any] | None:
    """Return what a command line asks `_run` for; None where it is not plainly right, or asks for more."""
    asked: dict[str, Any] = {"module": False, "as_json": False, "stats": None}
    if words[:1] != ["run"]:
        return None
    at = 1
    while at < len(words):
        if words[at] == "-m":
            asked["module"] = True
        elif words[at] == "--json":
            asked["as_json"] = True
        elif words[at] == "--stats" and at + 1 < len(words):
            at += 1
            path = os.path.abspath(words[at])
            if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path)):
                return None
            asked["stats"] = path
        elif words[at] == "-" or not words[at].startswith("-"):
            if any(word.partition("=")[0] in _OPTIONS for word in words[at + 1 :]):
                return None
            return {**asked, "target": words[at], "arguments": words[at + 1 :]}
        else:
            return None
        at += 1
    return None


def _run(target: str, arguments: list[str], *, module: bool, as_json: bool, stats: str | None) -> int:
    from ..errors import StowplanError
    from .scripts import Script
    from .scripts.serving import run_served

    try:
        program = Script(target, module=module)
        return run_served(program, arguments, as_json=as_json, stats=stats)
    except (StowplanError, OSError) as error:
        from .terminal import printable

        print(f"Error: {printable(str(error))}", file=sys.stderr)
        return 2
