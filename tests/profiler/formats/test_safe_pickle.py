"""The pickle reader: agrees with Python's own on what both read, and can run nothing."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.profiler.formats.safe_pickle import UnsafePickleError, loads

from ...running import traced

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**500), 2**500) | st.floats(allow_nan=False) | st.text(),
    lambda items: (
        st.lists(items)
        | st.lists(items).map(tuple)
        | st.dictionaries(st.text(max_size=5), items, max_size=5)
        | items.map(lambda item: [item, item])  # shared: the memo
    ),
    max_leaves=20,
)


@given(PLAIN, st.integers(2, 5))
def test_reads_what_python_writes(what: Any, protocol: int) -> None:
    assert loads(pickle.dumps(what, protocol)) == what


def test_long_texts_and_many_items() -> None:
    what = {"text": "x" * 100_000, "items": list(range(70_000)), "names": [f"{k}" for k in range(2000)] * 2}
    assert loads(pickle.dumps(what, 4)) == what


class Hostile:
    def __reduce__(self) -> Any:
        return os.mkdir, ("hostile-pickle-was-here",)


@pytest.mark.parametrize("protocol", range(6))
def test_runs_nothing(protocol: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps({"device_traces": Hostile()}, protocol)
    with pytest.raises(UnsafePickleError, match="expected"):
        loads(data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "code", [b"c", b"\x93", b"R", b"o", b"i", b"b", b"\x81", b"\x92", b"P", b"Q", b"\x82", b"\xff"]
)
def test_has_no_instruction_that_imports_calls_or_builds(code: bytes) -> None:
    with pytest.raises(UnsafePickleError, match="the pickle has the instruction"):
        loads(b"\x80\x04" + code + b"os\nsystem\n.")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04Nr\xff\xff\xff\x7f.",  # memo number 2**31 - 1
        b"\x80\x04X\xff\xff\xff\xff.",  # text of 4 GiB
        b"\x80\x04\x8d" + struct.pack("<Q", 2**60) + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b"N.",
        b"(" * 10_000 + b".",
    ],
)
def test_a_small_file_takes_little_memory(data: bytes) -> None:
    with traced():
        with contextlib.suppress(UnsafePickleError):
            loads(data)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "truncated"),
        (b"\x80\x04]", "truncated"),
        (b"\x80\x04h\x07.", "KeyError"),
        (b"\x80\x04}N\x88s.", "a key is a NoneType, expected text"),
        (b"\x80\x04)Na.", "a tuple, expected a list"),
        (b"\x80\x04}(Nu.", "a key without a value"),
        (b"\x80\x04X\x01\x00\x00\x00\xff.", "UnicodeDecodeError"),
        (b"\x80\x01N.", "the protocol 1; expected 2 to 5"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, message: str) -> None:
    with pytest.raises(UnsafePickleError, match=message):
        loads(data)
