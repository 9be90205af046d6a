"""``make gpu-check``: the device's facts, steps of every size, and one clear line without a device."""

from __future__ import annotations

import pytest

from tools import gpu_check

from ..children import python

pytestmark = pytest.mark.gpu


def test_steps_of_every_size_are_replayed() -> None:
    done = python("-c", gpu_check.SIZES)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5


def test_no_device_is_one_clear_line() -> None:
    done = python("-m", "tools.gpu_check", SIMHIP_DEVICES="0", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert not done.stdout
    assert done.stderr.startswith("stowplan: gpu-check: nothing was run: ")
    assert len(done.stderr.splitlines()) == 1
