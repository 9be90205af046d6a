"""The importer of docs/extending.rst passes the contract suite that its page names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..contracts.importer import ImporterContract
from .examples import example, registered


@pytest.fixture(scope="module", autouse=True)
def importer() -> Iterator[None]:
    with registered("importer"):
        yield


class TestMtrace(ImporterContract):
    name = "mtrace"
    sample = b"""\
= Start
@ ./solver:(step+0x1d)[0x55d0f1b2a1d1] + 0x55d0f2c3e2a0 0x400
@ ./solver:(step+0x2b)[0x55d0f1b2a1df] + 0x55d0f2c3e6b0 0x1000
@ ./solver:(step+0x31)[0x55d0f1b2a1e5] - 0x55d0f2c3e2a0
@ ./solver:(grow+0x11)[0x55d0f1b2a211] < 0x55d0f2c3e6b0
@ ./solver:(grow+0x11)[0x55d0f1b2a211] > 0x55d0f2c40000 0x2000
@ ./solver:(grow+0x31)[0x55d0f1b2a231] + (nil) 0x7fffffffffffffff
@ ./solver:(grow+0x31)[0x55d0f1b2a231] - 0x55d0f2c40000
= End
"""


def test_mtrace_has_sizes_and_callers(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(TestMtrace.sample)
    profile = example("importer").read(path)
    assert profile.size.tolist() == [0x400, 0x1000, 0x2000]
    assert profile.end.tolist() == [2, 3, 5]
    assert profile.sites[0] == "./solver:(step+0x1d)[0x55d0f1b2a1d1]"
