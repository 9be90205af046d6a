"""Measurements in processes of their own: a JSON object on the command line, one on the standard output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from .runner import CannotRunError


def ask(module: str, asked: Mapping[str, Any], **environment: str) -> dict[str, Any]:
    """Run a module of this package with an object, and return its answer.

    Parameters
    ----------
    module
        Name within `experiments.measures`; it calls `answer`.
    asked
        For the module.
    **environment
        Variables of the process, beside those of this one.

    Raises
    ------
    CannotRunError
        The process ended early.
    """
    done = subprocess.run(
        [sys.executable, "-m", f"{__package__}.{module}", json.dumps(asked)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise CannotRunError(f"ended early: {said[-1] if said else f'status {done.returncode}'}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def answer(find: Callable[..., Mapping[str, Any]], argument: str) -> None:
    """Call a function with the fields of the object on the command line, and print what it returns."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that nothing else that is printed reaches the answer
    print(json.dumps(find(**json.loads(argument))), file=answers, flush=True)
