"""Plans in files: a second run without warm-up, and nothing believed that is not checked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan import NumpyPool
from stowplan.errors import FormatError, PoolError
from stowplan.planning import Plan, make_plan
from stowplan.planning.plan_file import SavedPlan, _opened, _sealed, load_plans, save_plans

from ..running import run
from .logs import profile

WHOLE = ("small", "requests", "period", "steps", "lane", "plan", "step_slot")


def work(scale: int = 1) -> float:
    a = np.full(1000 * scale, 1.5)
    b = a * 2
    return float(np.concatenate([a, b]).sum())


def a_plan() -> Plan:
    return make_plan(profile("640 1280 -0 320 -1 -2"), alignment=64)


def saved(path: Path) -> bytes:
    """Write a file of one plan, and return its bytes."""
    save_plans(path, [SavedPlan(0, 0, "train", a_plan())], "numpy", 64, 0)
    return path.read_bytes()


def changed(
    path: Path, numbers: Callable[[np.ndarray], object] = lambda numbers: None, **entry: object
) -> None:
    """Write that file with something changed in the plan's columns, offsets or header, and a valid digest."""
    header, columns = _opened(saved(path))
    whole = {name: entry.pop(name) for name in entry.keys() & header.keys()}
    for name in entry.keys() & header["plans"][0].keys():
        header["plans"][0][name] = entry[name]
    header["lanes"][0].update(entry)
    numbers(columns)
    path.write_bytes(_sealed({**header, **whole}, [columns]))


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": lambda numbers: numbers.__setitem__(slice(-3, None), 0)},  # everything in one place
        {"numbers": lambda numbers: numbers.__setitem__(-1, 32)},
        {"numbers": lambda numbers: numbers.__setitem__(0, -1)},
        {"numbers": lambda numbers: numbers.__setitem__(1, 1 << 20)},  # larger than its place
        {"numbers": lambda numbers: numbers.__setitem__(3, 99)},
        *({"requests": requests} for requests in (2, 4, -1, "x", 10**30)),
        *({"period": period} for period in (1, 10**30, None)),
        *({"steps": steps} for steps in (0, 2, 99)),
        *({"lane": lane} for lane in (-1, 8)),
        *({"plan": plan} for plan in (-1, 1)),
        {"key": ["a"]},
        *({name: value} for name in WHOLE for value in (-5, 1.5, "1", None, True, [], 10**30)),
        *(
            {name: value}
            for name in ("plans", "lanes")
            for value in ([1], ["a"], [[]], [{}], {"a": 1}, 7, None)
        ),
    ],
)
def test_what_is_not_valid_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    changed(tmp_path / "plans")
    assert load_plans(tmp_path / "plans", "numpy", 64)[0][0].plan.arena_bytes == a_plan().arena_bytes
    changed(tmp_path / "plans", **change)
    with pytest.raises(FormatError, match=r"(the header|plan 0|the list of lanes) is not valid: "):
        NumpyPool.load(tmp_path / "plans")


def test_a_plan_that_was_placed_above_others_comes_back(tmp_path: Path) -> None:
    """It needs more than all of its own blocks one above the other."""
    above = (1 << 20) + np.array([0, 640, 1920])
    changed(tmp_path / "plans", lambda numbers: numbers.__setitem__(slice(-3, None), above))
    ((entry,), _) = load_plans(tmp_path / "plans", "numpy", 64)
    assert entry.plan.placement.offsets.tolist() == above.tolist()


@pytest.mark.parametrize(
    ("backend", "alignment", "message"), [("cupy: X", 64, "backend 'numpy'"), ("numpy", 512, "alignment 64")]
)
def test_another_backend_is_refused(tmp_path: Path, backend: str, alignment: int, message: str) -> None:
    path = tmp_path / "program.plans"
    saved(path)
    with pytest.raises(FormatError, match=f"made for the {message}; expected"):
        load_plans(path, backend, alignment)


def test_a_profile_is_not_a_plan_file(tmp_path: Path) -> None:
    path = tmp_path / "step.profile"
    a_plan().profile.save(path)
    with pytest.raises(FormatError, match="not a plan"):
        NumpyPool.load(path)


def test_a_key_that_no_file_can_hold(tmp_path: Path) -> None:
    pool = NumpyPool(warmup=0)
    with pool:
        run(pool, 3, work, ("a", 1))
    with pytest.raises(PoolError, match=r"key \('a', 1\) cannot be saved"):
        pool.save(tmp_path / "never")
    assert list(tmp_path.iterdir()) == []


@settings(settings.get_profile("cheap"))
@given(position=st.integers(0, 1 << 16), value=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_harmless(
    position: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("changed") / "program.plans"
    content = bytearray(saved(path))
    content[position % len(content)] = value
    path.write_bytes(content)
    with suppress(FormatError):
        load_plans(path, "numpy", 64)
