"""Run a program under a recorder and tracemalloc: ``python -m ... SCRIPT [ARGUMENT...]`` prints both peaks, as JSON.

The program is compiled and runs once before: then its imports and Python's permanent objects are there already.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import sys
import tracemalloc
import types
from pathlib import Path
from types import CodeType

import numpy as np

from stowplan import NumpyRecorder
from stowplan.errors import ProfileError

SMALL = 1


def run(code: CodeType) -> None:
    main = types.ModuleType("__main__")
    main.__dict__["__file__"] = sys.argv[0]
    sys.modules["__main__"] = main
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, main.__dict__)


def main() -> None:
    del sys.argv[0]
    code = compile(Path(sys.argv[0]).read_text(), sys.argv[0], "exec")
    run(code)
    gc.collect()
    np.setbufsize(16)  # NumPy's own buffers are no arrays: at most 16 elements for each operand, not 8192
    recorder = NumpyRecorder(small=SMALL, auto_step=True, threads=True)
    tracemalloc.start(1)
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    with recorder:
        run(code)
    traced = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    try:
        profile = recorder.profile()
    except ProfileError:
        profile = recorder.whole()
    assert profile.program is not None
    print(json.dumps({"recorded": profile.program.live_peak, "traced": traced}))


if __name__ == "__main__":
    main()
