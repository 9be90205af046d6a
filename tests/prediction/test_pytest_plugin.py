"""The mark ``peak``, in a pytest of its own."""

from __future__ import annotations

import configparser
import importlib.util
from pathlib import Path

import pytest

from ..children import python

PLUGIN = "stowplan.prediction.pytest_plugin"
TESTS = """
import numpy as np, pytest, stowplan, threading, unittest

@pytest.fixture
def base():
    return np.ones(1_000_000)  # is not counted

@pytest.mark.peak("9 MB")
def test_below(base):
    assert (base * 2).sum() == 2e6

@pytest.mark.peak("7 MB")
def test_above(base):
    doubled = base * 2
    assert doubled.sum() == 2e6

@pytest.mark.peak("7 MB")
@pytest.mark.parametrize("n", [10, 1_000_000])
def test_each(n):
    np.ones(n)

@pytest.mark.peak("7 MB")
def test_many_lines():
    kept = [np.ones(400_000)]
    kept += [np.ones(300_000)]
    kept += [np.ones(200_000)]
    kept += [np.ones(100_000)]

@pytest.mark.peak("7 MB")
def test_thread():
    thread = threading.Thread(target=lambda: np.ones(1_000_000))
    thread.start()
    thread.join()

@pytest.mark.peak("1 KiB")
def test_own_failure_first(base):
    assert len(base * 2) == 0

@pytest.mark.peak("many")
def test_bad(): ...

def test_unmarked():
    np.ones(1_000_000)

@pytest.mark.peak("7 MB")
async def test_coroutine_without_a_plugin():
    np.ones(1_000_000)

@pytest.mark.peak("1 MiB")
def test_in_a_pool():
    with stowplan.NumpyPool():
        np.ones(1_000_000)

class TestCase(unittest.TestCase):
    @pytest.mark.peak("7 MB")
    def test_method(self):
        np.ones(1_000_000)

    @pytest.mark.peak("7 MB")
    async def test_never_awaited(self):
        np.ones(1_000_000)

class TestAwaited(unittest.IsolatedAsyncioTestCase):
    @pytest.mark.peak("7 MB")
    async def test_coroutine(self):
        np.ones(1_000_000)

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
@pytest.mark.peak("7 MB")
async def test_anyio(anyio_backend):
    np.ones(1_000_000)

@pytest.mark.asyncio
@pytest.mark.peak("7 MB")
async def test_asyncio():
    np.ones(1_000_000)
"""
INSTALLED = [
    name
    for name, module in (("anyio", "anyio"), ("pytest_asyncio.plugin", "pytest_asyncio"))
    if importlib.util.find_spec(module)
]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("marked")
    (folder / "test_it.py").write_text(TESTS)
    words = ["-rA", "-W", "ignore::pytest.PytestUnknownMarkWarning", "."]
    words += [f"-p{plugin}" for plugin in (PLUGIN, "no:cacheprovider", *INSTALLED)]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # an installation brings the plugin in by itself
    return python("-m", "pytest", *words, folder=folder, **alone).stdout


@pytest.mark.parametrize("name", ["test_below", "test_each[10]", "test_unmarked"])
def test_what_is_below_passes(output: str, name: str) -> None:
    assert f"PASSED test_it.py::{name}\n" in output


ABOVE = [
    "test_above",
    "test_each[1000000]",
    "test_thread",
    "TestCase::test_method",
    "TestAwaited::test_coroutine",
]
ABOVE += ["test_anyio"] * ("anyio" in INSTALLED) + ["test_asyncio"] * ("pytest_asyncio.plugin" in INSTALLED)


@pytest.mark.parametrize("name", ABOVE)
def test_what_is_above_fails(output: str, name: str) -> None:
    assert f"FAILED test_it.py::{name} - " in output
    assert "the live peak is 7.6 MiB; expected at most 6.7 MiB" in output


def test_the_message_has_the_line_and_the_planned_peak(output: str) -> None:
    assert "(planned peak: 7.6 MiB)" in output
    assert "  7.6 MiB  " in output
    assert "test_it.py:14 test_above" in output
    assert "  781 KiB  in 2 other lines" in output


def test_the_test_s_own_failure_comes_first(output: str) -> None:
    assert "FAILED test_it.py::test_own_failure_first - assert 1000000 == 0" in output


def test_a_coroutine_that_nothing_runs_does_not_pass(output: str) -> None:
    assert "PASSED test_it.py::test_coroutine_without_a_plugin" not in output
    assert "FAILED test_it.py::TestCase::test_never_awaited - Failed: the test is a corou" in output


def test_memory_that_is_not_counted_is_said(output: str) -> None:
    assert "PytestWarning: the mark peak cannot tell: it takes " in output


def test_a_limit_that_is_none_is_an_error(output: str) -> None:
    assert "'many'; expected bytes, like 4096" in output


def test_the_entry_point_is_declared() -> None:
    config = configparser.ConfigParser()
    config.read(Path(__file__).parents[2] / "setup.cfg")
    assert f"stowplan = {PLUGIN}" in config["options.entry_points"]["pytest11"]
