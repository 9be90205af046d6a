"""The model of CuPy's pool beside CuPy's own, which runs here without a GPU: see cupy_peer."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

from stowplan.insight.pool_models import CupyPoolModel, Requests, replay

from ....children import python
from .without_ties import program_without_ties


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
