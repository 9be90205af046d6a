"""docs/reference.rst has every public name of the package, and its integrations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stowplan
from stowplan import errors

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference.rst").read_text(encoding="utf-8")
OF_THE_PACKAGE = set(stowplan.__all__) - {"__version__", *vars(errors)}
OTHERS = {"chainer", "torch", "errors", "dask.PoolPlugin", "dask.stats", "dask.MemoryPlugin", "dask.needs"}


@pytest.mark.parametrize("name", sorted(OF_THE_PACKAGE | OTHERS))
def test_a_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf":: stowplan\.{name}$", PAGE, re.MULTILINE)
