"""PlanningOptions: what is taken, what is refused, and that each pool's help and signature have them all."""

from __future__ import annotations

import inspect
import math
import sys
from typing import Any

import pytest

from stowplan import NumpyPool, PoolError, TorchPool
from stowplan.allocator.options import Options, PlanningOptions, limit_bytes
from stowplan.common.host_memory import host_memory
from stowplan.errors import MissingDependencyError, StowplanError

NAMES = list(PlanningOptions._fields)


@pytest.mark.parametrize(
    ("option", "values", "expected"),
    [
        ("warmup", (-1, 1.5, "2", True, None), "a number of steps, 0 or more"),
        ("max_plans", (0, 2.0, "2", False), "a number of plans, 1 or more"),
        ("planning_share", (-0.1, math.nan, "much", None, True), "a share of the program's CPU time, 0 or"),
        ("small", (-1, 1.5, "1 KiB", True), "None or a number of bytes, 0 or more"),
        ("limit", (0, -1, 1.5, True, "", "much", "0", "5 parsecs", "0%", "101%", "%"), "bytes, 1 or more"),
    ],
)
def test_a_value_out_of_range_is_refused(option: str, values: tuple[Any, ...], expected: str) -> None:
    for value in values:
        with pytest.raises(PoolError) as refused:
            NumpyPool(**{option: value})
        assert f"{option} is {value!r}; expected {expected}" in str(refused.value)


def test_a_solver_or_a_keyword_that_is_none_is_refused() -> None:
    with pytest.raises(StowplanError, match="fastest"):
        NumpyPool(solver="fastest")
    for pool in pools():
        with pytest.raises(PoolError, match=rf"^{pool.__name__} has no option 'autostep': did you mean"):
            pool(autostep=True)
    with pytest.raises(PoolError, match="no option 'fast': expected warmup, solver"):
        NumpyPool(fast=True)  # type: ignore[call-arg]


def test_the_former_name_of_the_solver_warns() -> None:
    with (
        pytest.warns(DeprecationWarning, match=r"NumpyPool\(solver=...\)"),
        pytest.raises(StowplanError, match="fastest"),
    ):
        NumpyPool(planner="fastest")  # type: ignore[call-arg]


def test_a_limit_is_bytes_or_text_or_a_share() -> None:
    for limit, expected in ((4096, 4096), ("512MiB", 512 << 20), ("1.5 GB", 1_500_000_000), ("12.5 %", 1000)):
        assert limit_bytes(limit, lambda: 8000) == expected
    assert (PlanningOptions(limit="80%").limit_share, PlanningOptions(limit=80).limit_share) == (0.8, None)


def test_a_share_of_the_host_is_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 << 26 < host_memory() < 1 << 50
    monkeypatch.setattr("stowplan.allocator.backends.host_pool.host_memory", lambda: 1 << 20)
    assert NumpyPool(limit="25%")._host.limit == 1 << 18


def test_type_checkers_see_the_same_options() -> None:
    declared, checked = (
        {name: hint.__forward_arg__ for name, hint in kind.__annotations__.items()}
        for kind in (PlanningOptions, Options)
    )
    assert declared == checked


def pools() -> list[Any]:
    from stowplan.allocator.backends.torch_cuda_pool import TorchCudaPool

    try:
        import cupy  # noqa: F401
    except ImportError:
        return [NumpyPool, TorchPool, TorchCudaPool]
    from stowplan import CupyPool

    return [NumpyPool, TorchPool, TorchCudaPool, CupyPool]


@pytest.mark.parametrize("pool", pools())
def test_help_and_signature_of_a_pool_have_every_option(pool: Any) -> None:
    parameters = inspect.signature(pool).parameters
    assert list(parameters)[-len(NAMES) :] == NAMES
    assert {name: parameters[name].default for name in NAMES} == PlanningOptions._field_defaults
    described = inspect.getdoc(pool) or ""
    for name in parameters:
        assert f"\n{name}\n    " in described, name
    assert "PlanningOptions`" not in described.partition("Parameters")[2]


def test_without_cupy_its_pool_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from stowplan import CupyPool

    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingDependencyError, match=r"pip install '.\[cupy\]'"):
        CupyPool()
