"""Plans in files: a second run without warm-up, and nothing believed that is not checked."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan import NumpyPool, Profile
from stowplan.errors import FormatError, PoolError
from stowplan.planning import make_plan
from stowplan.planning.saved import SavedPlan, load_plans, save_plans


def work(scale: int = 1) -> float:
    a = np.full(1000 * scale, 1.5)
    b = a * 2
    return float(np.concatenate([a, b]).sum())


def trained() -> NumpyPool:
    pool = NumpyPool(warmup=0)
    with pool:
        for key, scale in (
            ("train", 1),
            ("train", 1),
            ("eval", 3),
            ("eval", 3),
            (None, 2),
            (None, 2),
            (None, 2),
        ):
            with pool.step(key):
                work(scale)
            pool.wait()
    assert pool.stats.plans == 3
    return pool


def test_a_second_run_replays_from_its_first_step(tmp_path: Path) -> None:
    path = tmp_path / "program.plans"
    trained().save(path)
    pool = NumpyPool.load(path, warmup=5)
    with pool:
        for key, scale in (("train", 1), ("eval", 3), (None, 2), ("train", 1)):
            with pool.step(key):
                assert work(scale) == 4500.0 * scale
    assert pool.stats.plans == 0
    assert pool.stats.replayed > 0
    assert "no_plan" not in pool.stats.reasons


def test_requests_are_still_checked(tmp_path: Path) -> None:
    path = tmp_path / "program.plans"
    trained().save(path)
    pool = NumpyPool.load(path)
    with pool, pool.step("train"):
        kept = [np.full(1000 + i, float(i)) for i in range(20)]
    assert all((a == i).all() for i, a in enumerate(kept))


def small_plan() -> tuple[Profile, int]:
    profile = Profile(np.array([100, 200]), np.array([0, 1]), np.array([2, 3]), period=4)
    return profile, 64


def test_overlapping_offsets_are_refused(tmp_path: Path) -> None:
    from dataclasses import replace

    path = tmp_path / "wrong.plans"
    profile, alignment = small_plan()
    plan = make_plan(profile, alignment=alignment)
    wrong = replace(plan, placement=replace(plan.placement, offsets=np.array([0, 64])))
    save_plans(path, [SavedPlan(0, 0, "train", wrong)], "numpy", alignment, 0)
    with pytest.raises(FormatError, match=r"wrong\.plans: plan 0 is not valid: "):
        load_plans(path, "numpy", alignment)


@pytest.mark.parametrize(
    ("backend", "alignment", "message"), [("cupy: X", 64, "backend 'numpy'"), ("numpy", 512, "alignment 64")]
)
def test_another_backend_is_refused(tmp_path: Path, backend: str, alignment: int, message: str) -> None:
    path = tmp_path / "program.plans"
    trained().save(path)
    with pytest.raises(FormatError, match=f"made for the {message}; expected"):
        load_plans(path, backend, alignment)


def test_a_profile_is_not_a_plan_file(tmp_path: Path) -> None:
    path = tmp_path / "step.profile"
    small_plan()[0].save(path)
    with pytest.raises(FormatError, match="a 'profile' file; expected 'plans'"):
        NumpyPool.load(path)


def test_a_key_that_no_file_can_hold(tmp_path: Path) -> None:
    pool = NumpyPool(warmup=0)
    with pool:
        for _ in range(3):
            with pool.step(("a", 1)):
                work()
            pool.wait()
    with pytest.raises(PoolError, match=r"key \('a', 1\) cannot be saved"):
        pool.save(tmp_path / "never")
    assert list(tmp_path.iterdir()) == []


@settings(settings.get_profile("cheap"))
@given(position=st.integers(0, 1 << 16), value=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_harmless(
    position: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("changed") / "program.plans"
    profile, alignment = small_plan()
    save_plans(
        path, [SavedPlan(0, 0, "train", make_plan(profile, alignment=alignment))], "numpy", alignment, 0
    )
    content = bytearray(path.read_bytes())
    content[position % len(content)] = value
    path.write_bytes(content)
    with suppress(FormatError):
        load_plans(path, "numpy", alignment)
