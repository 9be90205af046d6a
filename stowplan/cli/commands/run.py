"""``stowplan run``: run an unchanged program through a pool.

The command reads its words itself and imports little: Click would add a fifth to the time that Python takes to start
and to import NumPy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from ...common.errors import ScriptError, StowplanError
from ..terminal import printable, reason_of

USAGE = "stowplan run [OPTIONS] SCRIPT [ARGUMENTS]..."
HELP = f"""Usage: {USAGE}

  Run SCRIPT with its ARGUMENTS as python does, its arrays served by a pool.

  SCRIPT is a file, a folder or archive with a __main__.py, or - for standard
  input; with -m, a module. All that follows it is the script's.

  The pools serve NumPy's arrays and, if the script imports CuPy, CuPy's, in
  all threads. Arrays come from plans in steps that are marked
  (stowplan.step(), --step-function) or told: where an optimizer of Chainer's
  or PyTorch's has updated, a step ends, and the next begins. CuPy's pool is
  told; NumPy's with --auto-step. Without steps, NumPy's large arrays come
  from the pool's heap, and CuPy's from its memory. If the script gives CuPy
  an allocator, that serves what is not planned. Chainer is patched to work
  with the installed versions. At the end a line on standard error has the
  counts of each pool. The exit status is the script's.

Options:
  --step-function MODULE:FUNCTION
                Each call is a step; the script's own module is __main__.
  --stats FILE  Write the statistics to this file as well, as JSON.
  --json        Print the statistics as one line of JSON, at the end of
                standard output.
  --auto-step   Have NumPy's steps told, too. An error where neither Chainer
                nor PyTorch is installed; a line on standard error where no
                optimizer updates.
  -m            SCRIPT is the name of a module, as python -m takes it.
  -h, --help    Show this message and exit.

  Example: stowplan run train.py --epochs 20"""

FLAGS, VALUES = ("--auto-step", "--json", "--help", "-h", "-m"), ("--stats", "--step-function")


def run(words: Sequence[str]) -> int:
    """Run the command with the words that follow ``stowplan run``; return its exit status."""
    try:
        return _run(words)
    except (StowplanError, OSError) as error:
        print(f"Error: {reason_of(error)}", file=sys.stderr)
        return 2


def _run(words: Sequence[str]) -> int:
    options, target = _split(words)
    if options.keys() & {"-h", "--help"}:
        print(HELP)
        return 0
    if not target:
        raise ScriptError(f"there is no SCRIPT; expected: {USAGE}")
    script, *arguments = target
    warn_of_options("stowplan run", (*FLAGS, *VALUES), arguments)
    stats = options.get("--stats")
    if stats is not None:
        stats = os.path.abspath(stats)  # the script may change the folder
        if os.path.isdir(stats) or not os.path.isdir(os.path.dirname(stats)):
            raise ScriptError(f"--stats {options['--stats']}: expected a file in a folder that exists")
    from ..scripts import Script
    from ..scripts.serving import run_served

    return run_served(
        Script(script, module="-m" in options),
        arguments,
        options.get("--step-function"),
        stats=stats,
        as_json="--json" in options,
        auto_step="--auto-step" in options,
    )


def _split(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options with their values, and the script with its arguments."""
    options, rest = {}, list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        name, sign, value = rest.pop(0).partition("=")
        if name == "--":
            break
        if name not in VALUES and (name not in FLAGS or sign):
            raise ScriptError(f"there is no option {name}{sign}; expected: {USAGE}")
        if name in VALUES and not sign:
            if not rest:
                raise ScriptError(f"{name} has no value; expected: {USAGE}")
            value = rest.pop(0)
        options[name] = value
    return options, rest


def warn_of_options(command: str, options: Iterable[str], arguments: Sequence[str]) -> None:
    """Tell which of the script's arguments look like options of the command, which stand before the script."""
    for word in dict.fromkeys(word.partition("=")[0] for word in arguments):
        if word in options:
            print(
                f"stowplan: {printable(word)} stands after SCRIPT, and is the script's; as an option of {command} "
                "it would stand before SCRIPT",
                file=sys.stderr,
            )
