"""Run a function in a process of its own, forked from one that has imported PyTorch and the pool, and no more."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

SECONDS = 600
# Two threads that spin take minutes on a core that is busy.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["torch", "stowplan.allocator.backends.torch_pool", "experiments.torch.session"]
)


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what ``function(*arguments)`` returns there; the function is one of a module that can be imported.

    What it raises fails the test, and so does a process that hangs or does not end well.
    """
    answers, answer = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_answer, args=(answer, function, arguments), daemon=False)
    process.start()
    answer.close()
    try:
        if not answers.poll(SECONDS):
            raise AssertionError(f"no answer within {SECONDS} s")
        works, found = answers.recv()
        process.join(SECONDS)
        assert process.exitcode == 0
    finally:
        if process.is_alive():
            process.kill()
        process.join()
    assert works, found
    return found


def _answer(answer: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        answer.send((True, function(*arguments)))
    except BaseException:
        answer.send((False, traceback.format_exc()))
