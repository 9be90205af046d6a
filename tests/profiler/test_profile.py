"""Profile: validation, files."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.common.archive import write_archive
from stowplan.errors import FormatError, ProfileError
from stowplan.profiler import ESCAPED, Profile
from stowplan.profiler.profile import COLUMNS


def example() -> Profile:
    return Profile(
        size=np.array([8, 4, 16]),
        start=np.array([0, 2, 4]),
        end=np.array([3, ESCAPED, 6]),
        alloc_ns=np.array([5, 6, 7]),
        period=5,
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"size": [-1]}, "size -1 is negative"),
        ({"size": [1, 2]}, r"start has the shape \(1,\); expected \(2,\)"),
        ({"size": [1.5]}, "dtype float64; expected integers"),
        ({"start": [5]}, "start 5 is outside the step"),
        ({"start": [-1]}, "start -1 is outside the step"),
        ({"end": [0]}, r"lifetime \[0, 0\) is empty"),
        ({"end": [6]}, r"lifetime \[0, 6\) is longer than the period"),
        ({"stream": [1, 2]}, "stream has the shape"),
        ({"site": [0]}, "block 0: its call site is not one of the 0; expected their number, or -1"),
        ({"site": [2**32 - 1]}, "its call site is not one"),
    ],
)
def test_columns_that_contradict_each_other(columns: dict[str, list[float]], message: str) -> None:
    valid = {"size": [1], "start": [0], "end": [2]}
    with pytest.raises(ProfileError, match=message):
        Profile(**{k: np.array(v) for k, v in {**valid, **columns}.items()}, period=5)


def test_starts_must_rise() -> None:
    with pytest.raises(ProfileError, match="do not rise"):
        Profile(np.array([1, 1]), np.array([1, 0]), np.array([2, 2]), period=5)


def test_columns_are_read_only_copies() -> None:
    size = np.array([8])
    profile = Profile(size, np.array([0]), np.array([1]), period=2)
    size[0] = 9
    assert profile.size[0] == 8
    with pytest.raises(ValueError, match="read-only"):
        profile.size[0] = 9
    assert profile != "a profile"
    assert "1 blocks" in repr(profile)


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / "step.profile"
    example().save(path)
    assert Profile.load(path) == example()
    assert os.listdir(tmp_path) == ["step.profile"]
    sites = ("train.py:7 forward", "größe.py:1 <module>")
    profile = replace(example(), site=np.array([1, -1, 0]), sites=sites)
    profile.save(path)
    again = Profile.load(path)
    assert again == profile != example()
    assert (again.sites, again.site.tolist(), again.site.dtype) == (sites, [1, -1, 0], np.int32)
    assert example().site.tolist() == [-1, -1, -1]


def test_call_sites_of_a_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "sites.profile"
    columns = {name: getattr(example(), name) for name in (*COLUMNS, "site")}
    for sites, message in (("train.py", "expected a list of strings"), ([1], "expected a list of strings")):
        write_archive(path, "profile", 1, {"period": 5, "sites": sites}, columns)
        with pytest.raises(FormatError, match=message):
            Profile.load(path)
    write_archive(path, "profile", 1, {"period": 5, "sites": ["a"]}, {**columns, "site": np.full(3, 1)})
    with pytest.raises(FormatError, match="its call site is not one of the 1"):
        Profile.load(path)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a profile is saved and spoilt, over and over: a folder for each time takes longer than the test."""
    return tmp_path_factory.mktemp("spoilt") / "step.profile"


@pytest.fixture(scope="module")
def saved(path: Path) -> bytes:
    """The file of a profile."""
    example().save(path)
    return path.read_bytes()


@given(data=st.data())
def test_a_damaged_file_is_one_clear_error(data: st.DataObject, path: Path, saved: bytes) -> None:
    path.write_bytes(saved[: data.draw(st.integers(0, len(saved) - 1))])
    with pytest.raises(FormatError, match=r"step\.profile: not a profile file, or a truncated one"):
        Profile.load(path)


@settings(settings.get_profile("cheap"))
@given(position=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_changed_byte_never_escapes_as_another_error(
    position: int, value: int, path: Path, saved: bytes
) -> None:
    content = bytearray(saved)
    content[position % len(content)] = value
    path.write_bytes(content)
    with suppress(FormatError):
        Profile.load(path)


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    for write in (
        lambda: path.write_text("id,lower,upper,size\n"),
        lambda: np.savez(open(path, "wb"), size=np.zeros(1)),  # noqa: SIM115
        lambda: np.save(open(path, "wb"), np.zeros(1)),  # noqa: SIM115
        lambda: path.write_bytes(b""),
    ):
        write()
        with pytest.raises(FormatError, match="foreign: not a"):
            Profile.load(path)


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    import json

    path = tmp_path / "later"
    header = json.dumps({"format": "profile", "version": 99, "period": 1}).encode()
    with open(path, "wb") as file:
        np.savez(file, header=np.frombuffer(header, dtype=np.uint8))
    with pytest.raises(FormatError, match="profile version 99; this stowplan reads version 1"):
        Profile.load(path)


def test_csv_keeps_planned_blocks_and_their_circle(tmp_path: Path) -> None:
    path = tmp_path / "step.csv"
    example().to_csv(path)
    assert path.read_text().splitlines() == ["id,lower,upper,size,gaps", "0,0,3,8,", "2,0,5,16,1-4"]
    again = Profile.from_csv(path)
    assert again.size.tolist() == [8, 16]
    assert again.wrapped.tolist() == [False, True]
    assert again.planned_peak == example().planned_peak
    again.to_csv(path)
    assert Profile.from_csv(path) == again


def test_csv_with_gaps_that_no_profile_has(tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text("id,lower,upper,size,gaps\na,0,9,4,2-3\nb,1,12,4,\n")
    with pytest.raises(FormatError, match="block 'a': a profile holds one gap"):
        Profile.from_csv(path)


def test_an_empty_csv_problem_is_an_empty_profile(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    path.write_text("id,lower,upper,size\n")
    assert len(Profile.from_csv(path)) == 0
