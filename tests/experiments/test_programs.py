"""Programs that know nothing of stowplan print the same with it; what was measured becomes tables and a picture."""

from __future__ import annotations

import pytest

from experiments.programs import measure
from experiments.programs.catalogue import PROGRAMS, Program

OFTEN = ("startup", "jacobi", "autograd_network", "spectra_asyncio", "bootstrap_joblib", "video")
"""Programs that `make test` runs, too: one array, a library's, tasks, threads, blocks of many sizes. It records
others in tests/profiler/recorders/test_programs_live_peak.py."""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, id=program.name, marks=() if program.name in OFTEN else pytest.mark.slow)
        for program in PROGRAMS
    ],
)
def test_a_program_prints_the_same_through_the_pool(program: Program) -> None:
    missing = program.missing()
    if missing is not None:
        pytest.skip(missing)
    plain, ours = (
        measure.run(program, contestant, {}, [str(program.quick)])
        for contestant in (measure.PLAIN, measure.OURS)
    )
    assert ours.output == plain.output
    assert plain.output
    assert plain.figures == {}
    assert "numpy" in ours.figures
