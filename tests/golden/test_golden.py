"""Every stream is served as by the commit that made tests/data/golden: same addresses, reasons and counts."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from .catalogue import DATA, NAMES
from .replayed import replay

pytestmark = pytest.mark.no_cover


def expected(name: str) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return kept


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_is_served_as_before(name: str) -> None:
    kept, now = expected(name), replay(name)
    for number, (request, before) in enumerate(zip(now.rows, kept.get("rows", ()), strict=False)):
        assert request == before, f"request {number}"
    for number, (digest, before) in enumerate(zip(now.digests, kept["digests"], strict=True)):
        assert digest == before, f"requests of step {number}"
    assert now.stats == kept["stats"]
