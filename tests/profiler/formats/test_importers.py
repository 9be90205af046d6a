"""What other tools write, read as profiles: samples of their documented formats, and what is wrong with a file."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan.errors import FormatError
from stowplan.profiler import ESCAPED, Profile, formats
from stowplan.profiler.formats import rmm

from .snapshots import ARENA, entry, snapshot

DATA = Path(__file__).resolve().parents[2] / "data"
HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"


ROW = "1,00:00:00.0,{},{},{},0\n"


def columns(profile: Profile) -> tuple[list[int], list[int], list[int]]:
    return profile.size.tolist(), profile.start.tolist(), profile.end.tolist()


def dump(path: Path, what: Any, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(what, protocol=protocol))
    return path


# The samples tell the same story: what is freed in the step, what escapes, what is wrapped, what was there before.


def test_rmm() -> None:
    profile = formats.read(DATA / "rmm.csv")
    assert columns(profile) == ([256, 1000, 512, 4096], [0, 2, 4, 5], [3, 6, ESCAPED, 8])
    assert profile.period == 7
    assert profile.stream.tolist() == [2, 0, 0, 0]
    day, second = 24 * 3600 * 10**9, 10**9
    assert profile.alloc_ns[0] == day - second + 998_533_000
    assert (profile.free_ns[0], profile.free_ns[3]) == (day + 875_000, day - 875_000)
    assert profile.program is not None
    assert (profile.program.failed, profile.program.wanted) == (1, 0)  # not all that was live is known


def test_rmm_s_log_of_a_whole_program_knows_what_was_alive(tmp_path: Path) -> None:
    path, events = tmp_path / "rmm.csv", [("allocate", 1, 300), ("allocate", 2, 500), ("free", 1, 300)]
    events += [("allocate", 3, 400), ("allocate", 4, 0), ("free", 2, 500)]
    path.write_text(HEADER + "".join(ROW.format(action, hex(at), size) for action, at, size in events))
    profile = formats.read(path)
    assert profile.alive.tolist() == [300, 800, 900]
    assert profile.at_live_peak() == (3, 0, 400, 500)
    path.write_text(path.read_text() + ROW.format("free", "0x9", 64))  # the log does not have its allocation
    assert formats.read(path).at_live_peak() is None


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_torch_snapshot(tmp_path: Path, protocol: int) -> None:
    profile = formats.read(dump(tmp_path / "snapshot.pickle", snapshot(), protocol))
    assert columns(profile) == ([512, 300, 4096], [0, 2, 4], [3, ESCAPED, 6])
    assert profile.stream.tolist() == [0, 139669, 0]
    assert profile.sites == ("/home/me/train.py:7 step", "/home/me/train.py:9 step")
    assert profile.site.tolist() == [0, 1, 0]
    assert profile.alloc_ns.tolist() == [1_700_000_000_000_000_000] * 3


def test_a_step_of_the_backward_pass_has_its_name(tmp_path: Path) -> None:
    names = [
        "torch::unwind::unwind()",
        "torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)",
    ]
    frames: list[dict[str, Any]] = [{"filename": "??", "line": 0, "name": name} for name in names]
    shot = snapshot()
    for at, more in ((0, []), (4, [{"filename": "train.py", "line": 7, "name": "step"}])):
        shot["device_traces"][1].insert(at, {**entry("alloc", 1 << 45 | at, 64), "frames": frames + more})
    sites = formats.read(dump(tmp_path / "backward.pickle", shot)).sites
    assert {"BmmBackward0", "train.py:7 step > BmmBackward0"} < set(sites)


def test_the_device_must_be_chosen_where_there_are_several(tmp_path: Path) -> None:
    shot = snapshot()
    shot["device_traces"][0].append(entry("alloc", 0, 64))
    path = dump(tmp_path / "two.pickle", shot)
    with pytest.raises(FormatError, match=r"devices 0, 1; expected one, or a choice"):
        formats.read(path)
    assert columns(formats.read(path, device=0)) == ([64], [0], [ESCAPED])
    with pytest.raises(FormatError, match="no trace of device 2; expected one of 0, 1"):
        formats.read(path, device=2)


@pytest.mark.parametrize("name", ["rmm.csv", "snapshot.pickle"])
@pytest.mark.parametrize("form", ["profile", "torch"])
def test_round_trips(tmp_path: Path, name: str, form: str) -> None:
    source = dump(tmp_path / name, snapshot()) if name == "snapshot.pickle" else DATA / name
    profile = formats.read(source)
    # Apart from each other: any plan will do.
    rounded = -(-np.maximum(profile.size, 1) // 512) * 512
    offsets = np.where(profile.escaped, -1, np.cumsum(rounded) - rounded)
    formats.write(tmp_path / "again", form, profile, offsets)
    again = formats.read(tmp_path / "again", form)
    assert again.same_blocks(profile)
    assert (again.sites, again.site.tolist()) == (profile.sites, profile.site.tolist())


RMM = [
    ("", 1, "expected the header Thread,Time"),
    (HEADER + "1,00:00:00.0,allocate,0x1,2\n", 2, "5 fields; expected 6"),
    (HEADER + "1,00:00:00.0,grab,0x1,2,0\n", 2, "the action 'grab'; expected allocate, free"),
    (HEADER + "1,25:00:00.0,free,0x1,2,0\n", 2, "the time '25:00:00.0'; expected HH:MM:SS"),
    (HEADER + "\n1,0:0:0,allocate,0x1,2,0\n", 3, "the time '0:0:0'; expected HH:MM:SS"),
    (HEADER + "1,00:00:00.0,allocate,heap,2,0\n", 2, "the pointer 'heap'; expected a hexadecimal number"),
    (HEADER + "1,00:00:00.0,allocate,0x1,-2,0\n", 2, "the size '-2'; expected bytes, 0 or more"),
    (HEADER + "1,00:00:00.0,allocate,0x1,2,s\n", 2, "the stream 's'; expected a hexadecimal number"),
    (HEADER + "1,00:00:00.0,allocate,0xffffffffffffffff,2,0\n", 2, "18446744073709551615 is out of range"),
    (HEADER + "1,00:00:00.0,allocate,0x1,2,0\n" * 2, 3, "an allocation at 0x1, where a block is alive"),
    (HEADER + "x" * (1 << 17), 2, "a line of more than 65536 bytes"),
]


@pytest.mark.parametrize(("text", "line", "message"), RMM)
def test_a_bad_log_of_rmm_is_named(tmp_path: Path, text: str, line: int, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(FormatError, match=rf"bad\.csv, line {line}: .*{message}"):
        rmm.read(path)


def test_nothing_of_no_bytes_is_in_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "log"
    nothing = [ROW.format("allocate", pointer, 0) for pointer in ("(nil)", "(nil)", "0x1", "0x2")]
    freed = [ROW.format("free", pointer, 0) for pointer in ("(nil)", "0x1", "(nil)")]
    path.write_text("".join([HEADER, ROW.format("allocate", "0x1", 8), *nothing, *freed]))
    assert columns(formats.read(path)) == ([8], [0], [ESCAPED])
    entries = [entry("alloc", 0, size) for size in (8, 0, 0)] + [entry("free_completed", 0, 0)]
    assert columns(formats.read(dump(path, traced(*entries)))) == ([8], [0], [ESCAPED])


def test_logs_of_rmm_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "both.csv"
    both = [HEADER, ROW.format("allocate", "0x1", 8), HEADER, ROW.format("free", "0x1", 8)]
    path.write_text("".join(both))
    assert columns(formats.read(path)) == ([8], [0], [1])


def test_a_last_line_that_is_cut_off_is_left_out_with_a_word(tmp_path: Path) -> None:
    path, row = tmp_path / "cut.csv", ROW.format("allocate", "0x2", 2048)
    for length in range(1, len(row)):  # of each, the stream or the size might have had more digits
        path.write_text(HEADER + ROW.format("allocate", "0x1", 8) + row[:length])
        with pytest.warns(RuntimeWarning, match="the last line is cut off; it is left out") as warned:
            assert formats.read(path).size.tolist() == [8]
        assert [(w.filename, w.lineno) for w in warned] == [(str(path), 3)]


def traced(*entries: Any) -> dict[str, Any]:
    return {"device_traces": [list(entries)]}


TORCH = [
    ([], "expected a dictionary with device_traces"),
    ({"device_traces": [[], []]}, "no trace; expected one: call torch.cuda.memory._record_memory_history"),
    (traced(3), r"device_traces\[0\]\[0\]: no action"),
    (traced(entry("oom", 0, 1), {"action": "alloc", "size": 1}), r"device_traces\[0\]\[1\]: addr is None"),
    (traced(entry("alloc", 0, -1)), r"\[0\]\[0\]: size is -1; expected an integer"),
    (traced(entry("alloc", 0, 1 << 900)), r"size is 845.*; expected an integer, 0 or more, of 64 bits"),
    (traced(entry("alloc", 0, 1), entry("alloc", 0, 2)), rf"an allocation at {ARENA:#x}, where a block"),
    (traced(*(entry("alloc", k, 2**62) for k in range(2))), "the sizes add up to"),
    ({1: 2}, "a key is a int, expected text"),
]


@pytest.mark.parametrize(("what", "message"), TORCH)
def test_a_bad_snapshot_is_named(tmp_path: Path, what: Any, message: str) -> None:
    with pytest.raises(FormatError, match=rf"bad\.pickle: .*{message}"):
        formats.read(dump(tmp_path / "bad.pickle", what))


@pytest.mark.parametrize("suffix", [".profile", ".npz", ".csv", ".pickle", ".pkl"])
def test_suffixes_name_what_is_written(suffix: str) -> None:
    name = formats.format_of(f"x{suffix.upper()}")
    assert [form.write is not None for form in formats.registered() if form.name == name] == [True]


def test_a_log_without_allocations_is_refused(tmp_path: Path) -> None:
    freed = {"action": "free_completed", "addr": 1 << 44, "size": 1024, "stream": 0, "frames": []}
    logs = {
        "snapshot": pickle.dumps({"segments": [], "device_traces": [[freed]]}),
        "rmm": (HEADER + "1,00:00:00.0,free,0x1,2,0\n").encode(),
    }
    for name, content in logs.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FormatError, match=f"{name}: no allocation in the log; expected one or more"):
            formats.read(tmp_path / name)
