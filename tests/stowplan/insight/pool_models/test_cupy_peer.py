"""The model of CuPy's pool beside CuPy's own, which runs here without a GPU: see cupy_peer."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from stowplan.insight.pool_models import CupyPoolModel, Requests, replay, requests

from ....children import python
from ....packing.problems import training_step
from .without_ties import FREE, program_without_ties

ROOT = Path(__file__).resolve().parents[4]


def total_bytes(*programs: list[list[int]]) -> list[list[int]]:
    """Run programs through CuPy's pool in a process of its own."""
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed; expected: pip install 'stowplan[cupy]'")
    peer = "tests.stowplan.insight.pool_models.cupy_peer"
    done = python("-m", peer, stdin="\n".join(map(json.dumps, programs)))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def modelled(program: list[list[int]]) -> list[int]:
    block, size = np.array(program).T
    sizes = np.zeros(len(program), dtype=np.int64)
    sizes[block[size >= 0]] = size[size >= 0]
    return replay(Requests(block, size >= 0, sizes), CupyPoolModel(), steps=1).reserved.tolist()


def test_the_same_bytes_after_every_request() -> None:
    programs = [program_without_ties("cupy", seed) for seed in range(10)]
    assert total_bytes(*programs) == [modelled(program) for program in programs]


def test_nearly_the_same_where_equal_chunks_leave_a_choice() -> None:
    steps = [requests(training_step(seed)) for seed in range(5)]
    programs = [
        np.column_stack([step.block, np.where(step.allocate, step.size[step.block], FREE)]).tolist() * 6
        for step in steps
    ]
    # CuPy chooses among equal chunks by the addresses of Python objects, which differ from process to process. One
    # step may so reserve some percent more or less than the model's; that most of them do would not be by chance.
    peaks = [max(real) for real in total_bytes(*programs)]
    ratios = [
        real / replay(step, CupyPoolModel(), 6).reserved_peak for step, real in zip(steps, peaks, strict=True)
    ]
    assert np.median(ratios) == pytest.approx(1, rel=0.05), ratios
