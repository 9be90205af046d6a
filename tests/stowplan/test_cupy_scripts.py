"""``stowplan profile`` and ``stowplan run`` on programs that use CuPy: its pool, over host memory, without a driver.

The programs have CuPy's pool believe in a device (see tests/stowplan/insight/pool_models/cupy_peer.py); all else in
them is CuPy's own.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from ..children import printed, stowplan

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None,
    reason="CuPy is not installed; expected: pip install 'stowplan[cupy]'",
)

DEVICE = """
import ctypes
import numpy
from tests.stowplan.insight.pool_models.cupy_peer import answer_for_the_driver
kept = answer_for_the_driver()
import cupy

def host(size):
    owner = numpy.empty(size + 512, dtype=numpy.uint8)
    aligned = -owner.ctypes.data % 512 + owner.ctypes.data
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(aligned, size, owner, 0), 0)

device = cupy.cuda.MemoryPool(host)
"""
"""A module of the program's: what imports CuPy."""

LOOP = """
import ctypes
import sys
import waiting
import device

device.cupy.cuda.set_allocator(device.device.malloc)

def fill(array, byte):
    ctypes.memset(array.data.ptr, byte, array.nbytes)
    return array

def step(number, sizes=(3000, 700, 1500, 900)):
    before, total = None, 0
    for byte, size in enumerate(sizes):
        current = fill(device.cupy.empty(size, device.numpy.uint8), byte + number)
        if before is not None:
            total += ctypes.string_at(before.data.ptr, before.nbytes).count(byte - 1 + number)
        before = current
    return total

def main(steps):
    weights = device.cupy.empty(10_000)
    total = 0
    for number in range(steps):
        total += step(number % 100)
        if number < 1000 and number % 50 == 49:  # plans are made beside the program
            waiting.for_plans()
    print(total)

main(int(sys.argv[1]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "device.py").write_text(DEVICE)
    (tmp_path / "loop.py").write_text(LOOP)
    shutil.copy(Path(__file__).with_name("waiting.py"), tmp_path)
    return tmp_path


def test_the_device_is_the_user_s_choice(folder: Path) -> None:
    done = stowplan("profile", "--device", "cpu", "loop.py", "50", folder=folder)
    assert "stowplan: NumPy: " in done.stderr, done.stderr
    (folder / "loop.profile").unlink()
    (folder / "host.py").write_text("import cupy, numpy\nfor _ in range(50): numpy.ones(5000)\n")
    done = stowplan("profile", "host.py", folder=folder)
    assert "stowplan: NumPy: the step that it repeats: 1 block," in done.stderr, done.stderr
    done = stowplan("profile", "--device", "gpu", "-o", "none.profile", "host.py", folder=folder)
    assert (done.returncode, "allocated no memory by CuPy" in done.stderr) == (1, True)
    assert not (folder / "none.profile").exists()


def test_threads_that_import_cupy_are_not_watched(folder: Path) -> None:
    (folder / "late.py").write_text(
        """
import threading
import numpy
def elsewhere():
    import device
    device.cupy.cuda.set_allocator(device.device.malloc)
    device.cupy.empty(100)
thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
for _ in range(50): numpy.ones(5000)
"""
    )
    done = stowplan("profile", "late.py", folder=folder)
    assert (done.returncode, "stowplan: NumPy: " in done.stderr) == (0, True), done.stderr


def test_run_serves_cupy_above_the_script_s_allocator(folder: Path) -> None:
    words = ("run", "--step-function", "__main__:step", "--stats", "stats.json", "loop.py", "3000")
    done = stowplan(*words, folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed("loop.py", "3000", folder=folder)
    assert "stowplan: cupy: " in done.stderr
    figures = json.loads((folder / "stats.json").read_text())["cupy"]
    assert figures["requests"] == 4 * 3000 + 1
    assert figures["share"] > 0.99
    assert figures["replayed"] > 0.5 * figures["requests"]
    assert figures["arena_bytes"] == figures["lower_bound"] == 4096


def test_chainer_tells_cupy_s_pool_where_steps_end(folder: Path) -> None:
    """It is Chainer that imports CuPy, and has not got far when it does."""
    if importlib.util.find_spec("chainer") is None:
        pytest.skip("Chainer is not installed; expected: pip install 'stowplan[chainer]'")
    (folder / "device.py").write_text(DEVICE.replace("import cupy\n", "import chainer, cupy\n"))
    optimizer = "optimizer = device.chainer.optimizers.SGD()\noptimizer.setup(device.chainer.Link())"
    loop = LOOP.replace("total += step(number % 100)", "total += step(number % 100); optimizer.update()")
    (folder / "training.py").write_text(loop.replace("import device", f"import device\n{optimizer}"))
    done = stowplan("run", "--stats", "stats.json", "training.py", "500", folder=folder)
    assert done.returncode == 0, done.stderr
    figures = json.loads((folder / "stats.json").read_text())["cupy"]
    assert figures["steps"] == 499
    assert figures["replayed"] >= 4 * 400


def test_a_script_s_pool_of_its_own_is_left_alone(folder: Path) -> None:
    text = LOOP.replace(
        "(device.device.malloc)", "(device.device.malloc)\nmine = device.cupy.cuda.MemoryPool(device.host)"
    )
    text += (
        "\nwith device.cupy.cuda.using_allocator(mine.malloc):\n    step(1)\nprint(mine.total_bytes() > 0)\n"
    )
    (folder / "loop.py").write_text(text)
    done = stowplan("run", "--stats", "stats.json", "loop.py", "20", folder=folder)
    assert done.stdout.endswith("True\n"), done.stderr
    assert json.loads((folder / "stats.json").read_text())["cupy"]["requests"] == 4 * 20 + 1
