"""Run one of experiments.programs under a recorder and tracemalloc: ``python -m ... NAME`` prints both peaks, as JSON.

The program runs once before, so that what it imports and what Python keeps for ever is there already.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import runpy
import sys
import tracemalloc

from experiments.programs.catalogue import PROGRAMS, Program
from stowplan import NumpyRecorder
from stowplan.errors import ProfileError

SMALL = 1033


def run(program: Program) -> None:
    sys.argv = [str(program.script), str(program.quick)]
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(program.script), run_name="__main__")


def main() -> None:
    program = next(program for program in PROGRAMS if program.name == sys.argv[1])
    run(program)
    gc.collect()
    recorder = NumpyRecorder(small=SMALL, auto_step=True, threads=True)
    tracemalloc.start(1)
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    with recorder:
        run(program)
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
