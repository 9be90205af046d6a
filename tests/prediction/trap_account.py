"""What a hard function takes, by Python's own account: ``python -m tests.prediction.trap_account NAME``.

One line of JSON: what tracemalloc and the resident set have of it at the size that is asked about, and what a guard
does that allows a tenth less.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import stowplan
from experiments.measures.usage import of_this_process

from . import traps  # noqa: F401 (it fills the table)
from .trap import TRAPS


def account(name: str) -> dict[str, Any]:
    """Return what a function takes at the size asked about, and what a guard says that allows a tenth less."""
    function, make, example, asked = TRAPS[name]

    def outcome(arguments: tuple[Any, ...]) -> Any:
        found = function(*arguments)
        if inspect.iscoroutine(found):
            return asyncio.run(found)
        return list(found) if hasattr(found, "__next__") else found

    outcome(make(example))  # imports what it needs
    arguments = make(asked)
    tracemalloc.start()
    Path("/proc/self/clear_refs").write_text("5")
    before = of_this_process("VmRSS:")
    result = outcome(arguments)
    traced, grown = tracemalloc.get_traced_memory()[1], of_this_process("VmHWM:") - before
    tracemalloc.stop()
    del result
    true = grown if grown > 1.03 * traced + 2**23 else traced
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = stowplan.guard(memory=true * 9 // 10)(function)(*make(asked))
            found.close() if inspect.iscoroutine(found) else None
            word = "; ".join(
                str(one.message)
                for one in said
                if "guard" in str(one.message) or "stowplan" in str(one.message)
            )
        except MemoryError as error:
            word = f"MemoryError: {error}"
    return {"true": true, "traced": traced, "resident": grown, "guard": word}


if __name__ == "__main__":
    print(json.dumps(account(sys.argv[1])))
