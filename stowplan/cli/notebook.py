"""A cell of a notebook through a pool: ``%load_ext stowplan``, and then ``%%stowplan`` as a cell's first line.

::

    %%stowplan --step-function train          each call of train(), which an earlier cell defines, is a step
    for batch in batches:
        train(batch)

Without ``--step-function`` the step that the cell repeats is found. A pool serves the cell alone, and a line below it
tells what the pool has counted; arrays that the cell has made live on. Needs IPython.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..common.errors import ScriptError

USAGE = "%%stowplan [--step-function FUNCTION]"


def load_ipython_extension(shell: Any) -> None:
    """Give a shell the magic ``%%stowplan``; IPython calls it for ``%load_ext stowplan``."""

    def stowplan(line: str, cell: str) -> None:
        """Run a cell through a pool; see `stowplan.cli.notebook`."""
        run_cell(shell, line, cell)

    shell.register_magic_function(stowplan, "cell")


def run_cell(shell: Any, line: str, cell: str) -> None:
    """Run a cell through a pool, and print what the pool has counted.

    Parameters
    ----------
    shell
        IPython's.
    line, cell
        What follows ``%%stowplan``, and the lines below it.

    Raises
    ------
    ScriptError
        The options are not those of `USAGE`, or the step function is not one.
    """
    from .scripts.auto_pools import pools
    from .scripts.serving import as_figures, print_counts

    name = _step_function(line)
    with _marked(shell.user_ns, name), pools() as serving:
        shell.run_cell(cell)  # which shows what the cell raises
        figures = {name: as_figures(pool.stats) for name, pool in serving.items()}
    print_counts(figures, sys.stdout)


def _step_function(line: str) -> str | None:
    words = shlex.split(line)
    if not words:
        return None
    if len(words) != 2 or words[0] != "--step-function":
        raise ScriptError(f"{line!r} is no option of the magic; expected {USAGE}")
    return words[1].removeprefix("__main__:")


@contextmanager
def _marked(names: dict[str, Any], function: str | None) -> Iterator[None]:
    """Have each call of the notebook's function be a step, while entered."""
    if function is None:
        yield
        return
    from .scripts.step_markers import step

    own = names.get(function)
    if not callable(own):
        raise ScriptError(
            f"the notebook has no function {function}; expected one that an earlier cell defines"
        )
    marked = names[function] = step()(own)
    try:
        yield
    finally:
        if names.get(function) is marked:
            names[function] = own
