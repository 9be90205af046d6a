"""Measurements in processes of their own: a function of this package is asked with JSON, and answers with JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from .peers import environment

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Variables with which libraries compute on one thread, so that CPU times compare."""
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}
"""One of the C library's: threads that take turns share the heap that the main thread has."""


class CannotRunError(Exception):
    """Something cannot be run on this machine; the message says why."""


class KilledError(CannotRunError):
    """A process was killed, as one is that takes more memory than it may."""


def ask(
    function: str,
    asked: Mapping[str, Any],
    variables: Mapping[str, str] | None = None,
    seconds: float | None = None,
    through: Sequence[str] = (),
) -> Any:
    """Call a function in a process of its own, and return what it returns.

    Parameters
    ----------
    function
        Its module and name, like ``"experiments.measures.device_training:train"``.
    asked
        Its arguments, by name.
    variables
        Environment variables that the process gets besides this process's own. It does not inherit an allocator that
        was preloaded here.
    seconds
        Time limit of the process; None: no limit.
    through
        A command that starts the process, given the process's own behind it.

    Raises
    ------
    KilledError
        The process was killed.
    CannotRunError
        The process ended early, or took too long.
    """
    command = [*through, sys.executable, "-m", f"{__package__}.apart", function, json.dumps(asked)]
    try:
        done = subprocess.run(
            command,
            env=environment(variables or {}),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotRunError(f"more than {seconds} s") from None
    if done.returncode == -signal.SIGKILL:
        raise KilledError("killed")
    if done.returncode:
        raise failure("ended early", done.returncode, done.stderr)
    return json.loads(done.stdout)


def failure(what: str, status: int, said: str) -> CannotRunError:
    """Return the error of a process that failed, with the last line that it said, or its exit status."""
    return CannotRunError(f"{what}: {(said.strip().splitlines() or [f'exit status {status}'])[-1]}")


def main(function: str, asked: str) -> None:
    """Call a function with the fields of a JSON object, and print what it returns; all else goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, name = function.partition(":")
    print(json.dumps(getattr(import_module(module), name)(**json.loads(asked))), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
