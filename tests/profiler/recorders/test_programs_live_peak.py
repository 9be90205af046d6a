"""The live peak of programs that nobody wrote for stowplan, against tracemalloc."""

from __future__ import annotations

import json

import pytest

from experiments.programs.catalogue import PROGRAMS, STARTUP, Program

from ...children import printed

OBJECTS = 96 << 10
"""Bytes that tracemalloc sees beside arrays: Python's objects of these programs, and a buffer of NumPy's."""

UNSEEN = {"tiles": 4 * 288 * 288 * 8}
"""Bytes of threads that tracemalloc may not see: an array each. NumPy tells tracemalloc of an array after it has asked
the allocator for it, and of its end before it frees it. So the recorder sees each array for longer, and in a program
with threads, others may begin and end meanwhile."""


OFTEN = ("wave_levels", "mlp_adam", "incremental_pca", "tiles")
"""Programs that run in `make test`, too: a rotation, an optimizer, a library's estimator, threads."""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, id=program.name, marks=() if program.name in OFTEN else pytest.mark.slow)
        for program in PROGRAMS
        if program is not STARTUP
    ],
)
def test_the_live_peak_is_tracemalloc_s(program: Program) -> None:
    if (missing := program.missing()) is not None:
        pytest.skip(missing)
    said = printed("-m", "tests.profiler.recorders.traced_program", program.script, program.quick)
    found = json.loads(said.splitlines()[-1])
    more = found["traced"] - found["recorded"]
    assert -UNSEEN.get(program.name, 0) <= more <= 0.01 * found["traced"] + OBJECTS
