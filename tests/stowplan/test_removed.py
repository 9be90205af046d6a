"""What was removed says what to use instead, wherever it is looked for."""

from __future__ import annotations

import importlib
import pickle
import sys

import pytest

import stowplan
from stowplan.errors import ConflictError, FormatError, RemovedError, StowplanError
from stowplan.removed import MOVED, REMOVED

from ..children import printed
from .command_line import refused
from .command_line import stowplan as command_line

OPTIONS = [
    ("demo", "--plot", "stowplan report FILE"),
    ("demo", "--no-plot", "it draws nothing"),
    ("order", "--plot", "simulate(graph, schedule).live"),
    ("pack", "--plot", "stowplan report PROBLEM"),
    ("schedule", "--plot", "the table that it prints"),
]
"""Command, option that was removed, and what is expected instead."""


@pytest.mark.parametrize("name", REMOVED)
def test_an_import_says_what_to_use_instead(name: str) -> None:
    package, _, last = name.rpartition(".")
    if package == "stowplan.dask":
        pytest.importorskip("distributed", reason="no Dask; expected: pip install 'stowplan[dask]'")
    for code in (f"import {name}", f"from {package} import {last}", f"from {name} import anything"):
        with pytest.raises(RemovedError, match=r"was removed; expected \w") as caught:
            exec(code, {})
        assert str(caught.value).startswith(name)
        assert isinstance(caught.value, (StowplanError, ImportError))
        assert caught.value.name == name
    assert not hasattr(importlib.import_module(package), last)
    assert last not in dir(importlib.import_module(package))


def test_an_attribute_says_it_too() -> None:
    with pytest.raises(AttributeError, match=r"^stowplan\.served was removed; expected pool\.serving\(\)"):
        stowplan.served  # noqa: B018


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("stowplan.nothing")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        stowplan.nothing  # noqa: B018


@pytest.mark.parametrize(("command", "option", "instead"), OPTIONS)
def test_an_option_says_what_to_use_instead(command: str, option: str, instead: str) -> None:
    said = " ".join(refused(command, option, "x.png").split())
    assert f"{option} was removed; expected " in said
    assert instead in said
    assert option not in command_line(command, "--help").output


@pytest.mark.parametrize("name", MOVED)
def test_what_has_moved_is_found_with_a_warning(name: str) -> None:
    sys.modules.pop(name, None)
    with pytest.warns(DeprecationWarning, match=f"is now {MOVED[name]}$"):
        found = importlib.import_module(name)
    assert found is importlib.import_module(MOVED[name])
    spec = found.__spec__
    assert spec is not None
    assert spec.name == MOVED[name]


def test_errors_need_no_import_of_their_own() -> None:
    assert printed("-c", "import stowplan; print(stowplan.errors.BudgetError.__name__)") == "BudgetError\n"
    assert printed("-c", "from stowplan.errors import *; print({'os', 'Any'} & {*globals()})") == "set()\n"


def test_errors_come_back_from_another_process() -> None:
    for error in (
        FormatError("a.csv", "row 3", line=4),
        ConflictError("two blocks", (1, 2)),
        StowplanError("all"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
