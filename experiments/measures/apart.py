"""Measurements in processes of their own: a function of this package is asked with JSON, and answers with JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TextIO

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


def answer(find: Callable[..., Any], argument: str) -> None:
    """Call a function with the fields of a JSON object, and print what it returns."""
    answers = take_answers()
    print(json.dumps(find(**json.loads(argument))), file=answers, flush=True)


def take_answers() -> TextIO:
    """Return where answers go; whatever else is printed goes to standard error from now on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def call(place: str, **asked: Any) -> Any:
    """Import a function, and call it."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)(**asked)


if __name__ == "__main__":
    answer(lambda **asked: call(sys.argv[1], **asked), sys.argv[2])
