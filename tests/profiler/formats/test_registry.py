"""The registry: a new format is one module, and formats do not claim each other's files."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from stowplan.errors import FormatError
from stowplan.profiler import Profile, formats
from stowplan.profiler.formats import registry

from .snapshots import snapshot

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture
def samples(tmp_path: Path) -> dict[str, Path]:
    """A file of each format that is read."""
    found = {"rmm": DATA / "rmm.csv"}
    profile = Profile([64, 8], [0, 1], [2, 5], period=4)
    for name, suffix in (("profile", ".profile"), ("minimalloc", ".csv")):
        found[name] = tmp_path / f"sample{suffix}"
        formats.write(found[name], name, profile)
    found["torch"] = tmp_path / "sample.pickle"
    found["torch"].write_bytes(pickle.dumps(snapshot()))
    return found


def test_each_sample_is_recognized_by_its_own_format_alone(samples: dict[str, Path]) -> None:
    readable = {form.name: form for form in formats.registered() if form.read is not None}
    assert readable.keys() == samples.keys()
    for name, path in samples.items():
        head = path.read_bytes()[: registry.HEAD]
        claims = [form.name for form in readable.values() if form.recognizes and form.recognizes(head)]
        assert claims == [name] == [formats.detect(path)]


def test_a_format_says_how_it_is_recognized_and_written() -> None:
    for form in formats.registered():
        assert (form.read is None) == (form.recognizes is None)
        assert (form.write is None) == (not form.suffixes)
        assert form.what


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "an empty file"),
        (b"\x00\x01\x02", "a file of no known kind"),
        (b"Dear diary,\n", "a text file"),
        (b"\n\n", "a text file"),
        (b'{"schemaVersion": 1,\n  "deviceProperties": [\n', r"a Chrome trace \(record the program"),
        (b'{"displayTimeUnit":"ms","traceEvents":[\n', r"a Chrome trace \(record the program"),
        (b'{"hook":"alloc","device_id":0,"mem_size":512}\n', r"CuPy's hook log \(record the program"),
        (b'{"format": "stowplan schedule", "version": 1', "a schedule of stowplan"),
        (b'\n {"format": "opgraph-1", "nodes"', r"a step graph \(stowplan schedule, order and pack"),
        (b'\xef\xbb\xbf{"n": 5}', "JSON"),
    ],
)
def test_a_file_that_no_format_recognizes_is_named_by_what_it_seems_to_be(
    tmp_path: Path, content: bytes, what: str
) -> None:
    path = tmp_path / "unknown"
    path.write_bytes(content)
    expected = r"unknown: {}.*, of no format that can be read; expected .*minimalloc \(.*\), .*torch"
    with pytest.raises(FormatError, match=expected.format(what)):
        formats.read(path)


@pytest.mark.parametrize("name", ["chrome", "cupy"])
def test_a_format_that_was_removed_says_what_to_use(tmp_path: Path, name: str) -> None:
    removed = f"the format '{name}' was removed; expected .*stowplan"
    with pytest.raises(FormatError, match=removed):
        formats.read(tmp_path / "log", name)
    with pytest.raises(FormatError, match=removed):
        formats.write(tmp_path / "log", name, Profile([64], [0], [2], period=4))
    with pytest.raises(FormatError, match="the format 'chrome' was removed"):
        formats.format_of("plan.json")
