"""Swapping to a file: the same bits, room that is reserved and used again, errors that lose nothing."""

from __future__ import annotations

import gc
import os
import resource
import signal
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.common import swap_transfers, swapping
from stowplan.errors import StowplanError
from stowplan.swapping import SwapError, SwapFile

from ..children import printed

DISK = swapping._temporary_directory()


def file_system(directory: str) -> str:
    with tempfile.TemporaryFile(dir=directory) as file:
        return swapping._file_system(file.fileno())


if file_system(DISK) in swapping.IN_MEMORY:
    pytest.skip(f"{DISK} is in memory; expected a disk", allow_module_level=True)


@pytest.fixture
def swap() -> Iterator[SwapFile]:
    with SwapFile(DISK) as swap:
        yield swap


def pattern(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, n, dtype=np.uint8)


def fetch(ticket: Any, like: Any) -> Any:
    out = np.empty(like.shape, like.dtype, "C" if like.flags.c_contiguous else "F")
    ticket.start_fetch(out)
    ticket.wait_fetched()
    return out


some_arrays = arrays.arrays(
    st.sampled_from(["?", "u1", "f2", "f4", ">f8", "c16", "M8[s]", "S3", "i8"]),
    arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=8),
    elements=None,
    fill=st.nothing(),
)


@settings(settings.get_profile("dear"))
@given(st.lists(st.tuples(some_arrays, st.sampled_from("CF")), min_size=1, max_size=8), st.randoms())
def test_many_arrays_in_flight_come_back_bit_by_bit(made: list[tuple[Any, str]], order: Any) -> None:
    with SwapFile(DISK, keep_cache=True) as swap:
        originals = [np.array(array, order=kind) for array, kind in made]
        tickets = [swap.evict(array.copy("K")) for array in originals]
        outs = [np.empty(a.shape, a.dtype, "C" if a.flags.c_contiguous else "F") for a in originals]
        numbers = list(range(len(tickets)))
        order.shuffle(numbers)
        for number in numbers:
            if order.random() < 0.5:
                tickets[number].wait_evicted()
            tickets[number].start_fetch(outs[number])
        for number in reversed(numbers):
            tickets[number].wait_fetched()
            tickets[number].close()
        for original, out in zip(originals, outs, strict=True):
            assert original.tobytes("A") == out.tobytes("A")
            assert original.flags.c_contiguous == out.flags.c_contiguous
        swap._take_back()
        assert swap._ranges.free == [(0, swap.bytes_reserved)]


def test_beyond_the_budget_nothing_changes() -> None:
    with SwapFile(DISK, budget=10_000) as swap:
        kept = swap.evict(pattern(4096))
        with pytest.raises(SwapError, match="would have 12288 bytes, its budget is 10000"):
            swap.evict(pattern(8000))
        kept.wait_evicted()
        swap.evict(pattern(4096, 1)).wait_evicted()
        assert (fetch(kept, pattern(4096)) == pattern(4096)).all()


def test_no_room_on_the_disk_is_an_error_of_the_reservation() -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with SwapFile(DISK) as swap:
            kept = swap.evict(pattern(100_000))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
            with pytest.raises(SwapError, match=r"no room to swap out .* bytes in .*: File too large"):
                swap.evict(pattern(2 << 20))
            assert (fetch(kept, pattern(100_000)) == pattern(100_000)).all()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_write_that_fails_loses_nothing(swap: SwapFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(swap_transfers.os, "pwrite", fails)
    array = pattern(10_000)
    ticket = swap.evict(array)
    with pytest.raises(SwapError, match=r"could not write 10000 bytes at 0 .*: Input/output error") as info:
        ticket.wait_evicted()
    assert isinstance(info.value, StowplanError)
    assert isinstance(info.value, OSError)
    assert ticket.array is array
    assert (fetch(ticket, array) == array).all()
    ticket.close()
    assert ticket.array is None


def test_a_read_that_fails_can_be_tried_again(swap: SwapFile, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = swap.evict(pattern(10_000))
    ticket.wait_evicted()
    out = np.empty(10_000, np.uint8)
    gone = weakref.ref(out)
    with monkeypatch.context() as patch:
        patch.setattr(swap_transfers.os, "preadv", lambda *arguments: 0)
        ticket.start_fetch(out)
        with pytest.raises(SwapError, match=r"could not read 10000 bytes .* ends 10000 bytes before") as info:
            ticket.wait_fetched()
    del out
    assert info.value.__cause__ is not None
    assert gone() is None  # the error keeps no memory
    assert (fetch(ticket, pattern(10_000)) == pattern(10_000)).all()


def test_short_writes_and_reads_go_on(swap: SwapFile, monkeypatch: pytest.MonkeyPatch) -> None:
    write, read = os.pwrite, os.preadv
    monkeypatch.setattr(swap_transfers.os, "pwrite", lambda file, data, at: write(file, data[:700], at))
    monkeypatch.setattr(swap_transfers.os, "preadv", lambda file, datas, at: read(file, [datas[0][:333]], at))
    ticket = swap.evict(pattern(10_000))
    ticket.wait_evicted()
    assert (fetch(ticket, pattern(10_000)) == pattern(10_000)).all()


@pytest.mark.parametrize(
    "array", [np.zeros((9, 9))[:, ::2], np.array([{}]), [1.0]], ids=["strided", "objects", "list"]
)
def test_what_cannot_be_swapped_is_named(swap: SwapFile, array: Any) -> None:
    with pytest.raises(ValueError, match="expected a contiguous NumPy array without Python objects"):
        swap.evict(array)


def test_an_array_that_does_not_fit_the_ticket_is_named(swap: SwapFile) -> None:
    ticket = swap.evict(np.zeros((3, 4), np.float32))
    fixed = np.zeros((3, 4), np.float32)
    fixed.flags.writeable = False
    for out in (np.zeros(12, np.float32), np.zeros((3, 4)), np.zeros((3, 4), np.float32, "F"), fixed):
        with pytest.raises(ValueError, match=r"expected float32 \(3, 4\) in order C"):
            ticket.start_fetch(out)
    with pytest.raises(SwapError, match="nothing is being fetched"):
        ticket.wait_fetched()
    ticket.close()
    ticket.close()
    with pytest.raises(SwapError, match="the ticket is closed"):
        ticket.start_fetch(np.zeros((3, 4), np.float32))


def test_a_closed_file_says_so() -> None:
    swap = SwapFile(DISK)
    ticket = swap.evict(pattern(10))
    swap.close()
    swap.close()
    with pytest.raises(SwapError, match="closed"):
        swap.evict(pattern(10))
    with pytest.raises(SwapError, match="closed"):
        ticket.start_fetch(pattern(10))
    ticket.close()


def test_the_file_is_private_and_nameless(swap: SwapFile) -> None:
    status = os.fstat(swap._file)
    assert status.st_mode & 0o777 == 0o600
    assert status.st_nlink == 0
    assert not os.get_inheritable(swap._file)


def test_room_is_reserved_on_the_disk(swap: SwapFile) -> None:
    ticket = swap.evict(np.zeros(1 << 20, np.uint8))
    status = os.fstat(swap._file)
    assert status.st_size == swap.bytes_reserved == 1 << 20
    assert status.st_blocks * 512 >= 1 << 20
    ticket.close()


def test_tickets_that_are_forgotten_give_their_range_back(swap: SwapFile) -> None:
    for _ in range(4):
        swap.evict(pattern(1 << 16)).wait_evicted()
        gc.collect()
    assert swap.bytes_reserved == 1 << 16


def test_without_a_reference_thread_and_file_are_gone() -> None:
    swap = SwapFile(DISK)
    swap.evict(pattern(100)).wait_evicted()
    thread, file = swap._helper.thread, swap._file
    del swap
    gc.collect()
    assert not thread.is_alive()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


def test_a_child_has_no_part_in_it(swap: SwapFile) -> None:
    ticket = swap.evict(pattern(1 << 16))
    ticket.wait_evicted()
    child = os.fork()
    if child == 0:
        try:
            swap.evict(pattern(10))
        except SwapError as error:
            said = "belongs to the process that made it" in str(error)
            ticket.close()
            try:
                os.fstat(swap._file)
            except OSError:
                os._exit(0 if said else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert (fetch(ticket, pattern(1 << 16)) == pattern(1 << 16)).all()


def test_a_directory_that_will_not_do_is_named(tmp_path: Path) -> None:
    with pytest.raises(SwapError, match=r"no swap file can be made in .*: No such file or directory"):
        SwapFile(tmp_path / "nowhere")


def test_memory_is_not_a_place_to_swap_to() -> None:
    if not os.access("/dev/shm", os.W_OK) or file_system("/dev/shm") != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here; expected one to be refused")
    with pytest.raises(
        SwapError, match=r"/dev/shm is on tmpfs, which keeps files in memory; expected .* disk"
    ):
        SwapFile("/dev/shm")


def test_a_program_ends_with_writes_under_way() -> None:
    script = (
        "import numpy as np; from stowplan.swapping import SwapFile; "
        f"s = SwapFile({DISK!r}); t = [s.evict(np.zeros(1 << 22, np.uint8)) for _ in range(8)]; print('end')"
    )
    assert printed("-W", "ignore", "-c", script) == "end\n"
