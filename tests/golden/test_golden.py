"""Every stream is served as by the commit that made tests/data/golden: same addresses, reasons and counts."""

from __future__ import annotations

import gzip
import json

import pytest

from .catalogue import DATA, NAMES
from .replayed import replay

SELDOM = {"soak-2": pytest.mark.slow, "soak-streams-anew": pytest.mark.slow}
"""Streams that two of NAMES are another seed of."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=SELDOM.get(name, ())) for name in NAMES])
def test_a_stream_is_served_as_before(name: str) -> None:
    kept, now = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes())), replay(name)
    for number, (request, before) in enumerate(zip(now.rows, kept.get("rows", ()), strict=False)):
        assert request == before, f"request {number}"
    for number, (digest, before) in enumerate(zip(now.digests, kept["digests"], strict=True)):
        assert digest == before, f"requests of step {number}"
    assert now.stats == kept["stats"]
