"""The recorder under a table of C functions, called through ctypes: from all threads, with the sites of operators."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from stowplan.profiler import _recorder
from stowplan.profiler._recorder import CallSites, HeapRecorder
from stowplan.profiler.events import ALLOCATE

from ...allocator.c_functions import CFunctions
from ...running import in_threads


class Listener(ctypes.Structure):
    """``struct Listener`` of profiler/torch_operators.cpp."""

    _fields_ = (
        ("begins", ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)),
        ("ends", ctypes.CFUNCTYPE(None)),
    )


HEAP = CFunctions(_recorder.watched_functions())
malloc, free = HEAP.malloc, HEAP.free
OPERATORS = Listener.from_address(_recorder.operator_listener())


@pytest.fixture
def sites() -> CallSites:
    return CallSites(lambda code: code.co_filename == __file__)


@pytest.fixture
def recorder(sites: CallSites) -> Iterator[HeapRecorder]:
    recorder = HeapRecorder(100, sites)
    assert recorder.watch()
    _recorder.note_operators(sites)
    yield recorder
    _recorder.note_operators(None)
    recorder.leave()


def test_a_step_is_one_of_all_threads(recorder: HeapRecorder) -> None:
    before = malloc(5000)
    assert recorder.begin_step()
    one = malloc(1000)
    other: list[int] = []
    in_threads(lambda: other.append(malloc(2000)))
    in_threads(lambda: free(one))
    small = malloc(99)
    cleared = HEAP.calloc(30, 100)
    assert ctypes.string_at(cleared, 3000) == bytes(3000)
    moved = HEAP.realloc(cleared, 4000)
    free(other[0])
    free(small)
    free(before)
    log = recorder.end_step()[0]
    signed = np.where(log["kind"] == ALLOCATE, log["size"], -1)
    assert signed.tolist() == [1000, 2000, -1, 3000, -1, 4000, -1]
    program = recorder.program(0)
    assert (program["requests"], program["other_requests"], program["bytes"]) == (5, 0, 15_000)
    assert moved % 16 == 0
    assert one % 64 == other[0] % 64 == cleared % 64 == 0
    free(moved)


def test_what_cannot_be_had_is_not_recorded(recorder: HeapRecorder) -> None:
    assert malloc(2**62) == 0
    assert HEAP.calloc(2**40, 2**40) == 0
    assert recorder.program(0)["requests"] == 0


def test_one_recorder_watches_and_blocks_outlive_it(recorder: HeapRecorder) -> None:
    second = HeapRecorder()
    assert not second.watch()
    kept = malloc(1000)
    recorder.leave()
    recorder.leave()
    assert second.watch()
    second.begin_step()
    free(kept)  # unknown to this one
    free(malloc(3000))
    assert len(second.end_step()[0]) == 2
    del second  # watching
    free(malloc(3000))
    assert recorder.watch()


def test_a_recorder_may_go_while_threads_ask() -> None:
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            free(malloc(4096))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    seen = 0
    try:
        while seen < 1000:
            recorder = HeapRecorder(0, CallSites(lambda code: True))
            assert recorder.watch()
            before = recorder.program(0)["requests"]
            while recorder.program(0)["requests"] < before + 20:
                pass
            seen += recorder.program(0)["requests"]
            del recorder
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=600)
    assert not any(thread.is_alive() for thread in threads)


def test_requests_have_the_site_with_which_the_operator_began(
    recorder: HeapRecorder, sites: CallSites
) -> None:
    recorder.begin_step()
    OPERATORS.begins(None, b"aten::conv2d")
    blocks = [malloc(1000)]
    in_threads(lambda: blocks.append(malloc(2000)))  # computes for the operator
    OPERATORS.ends()
    OPERATORS.begins(b"AddmmBackward0", b"aten::mm")
    blocks.append(malloc(3000))
    OPERATORS.ends()
    blocks.append(malloc(4000))  # no operator, nor the GIL
    _, _, numbers, _, _ = recorder.end_step()
    names = [sites.sites[number] if number >= 0 else None for number in numbers]
    assert names[0] == names[1] != names[2]
    assert names[0] is not None
    assert names[2] is not None
    assert names[0].endswith(" test_requests_have_the_site_with_which_the_operator_began > aten::conv2d")
    assert names[2].endswith("_began > AddmmBackward0 > aten::mm")
    assert names[3] is None
    assert names[0].startswith(f"{__file__}:")
    for block in blocks:
        free(block)


def test_where_several_operators_run_other_threads_have_no_site(
    recorder: HeapRecorder, sites: CallSites
) -> None:
    began, stop = threading.Event(), threading.Event()

    def operate() -> None:
        OPERATORS.begins(None, b"aten::second")
        free(malloc(2000))
        began.set()
        stop.wait()
        OPERATORS.ends()

    recorder.begin_step()
    OPERATORS.begins(None, b"aten::first")
    thread = threading.Thread(target=operate)
    thread.start()
    began.wait()
    in_threads(lambda: free(malloc(3000)))
    free(malloc(1000))
    stop.set()
    thread.join()
    in_threads(lambda: free(malloc(3000)))
    OPERATORS.ends()
    in_threads(lambda: free(malloc(3000)))
    log, _, numbers, _, _ = recorder.end_step()
    asked = log["size"][log["kind"] == ALLOCATE].tolist()
    names = [sites.sites[number].rpartition(" > ")[2] if number >= 0 else None for number in numbers]
    assert list(zip(asked, names, strict=True)) == [
        (2000, "aten::second"),
        (3000, None),
        (1000, "aten::first"),
        (3000, "aten::first"),
        (3000, None),
    ]


def test_nobody_watches_in_a_forked_child(recorder: HeapRecorder) -> None:
    OPERATORS.begins(None, b"aten::first")
    try:
        child = os.fork()
        if child == 0:
            _recorder.forget_watcher()
            free(malloc(1000))
            os._exit(0 if recorder.program(0)["requests"] == 0 else 1)
    finally:
        OPERATORS.ends()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    free(malloc(1000))
    assert recorder.program(0)["requests"] == 1
