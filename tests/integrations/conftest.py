"""Modules of tests whose framework is not installed skip, with what stowplan says of it."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

import pytest

from stowplan.errors import MissingDependencyError


@cache
def missing(package: str) -> str | None:
    """Return why a package of integrations cannot be imported; None: it can, and now its framework can, too."""
    try:
        importlib.import_module(f"stowplan.{package}")
    except MissingDependencyError as error:
        return str(error)
    return None


class Skipped(pytest.Module):
    """A module of tests that is not imported."""

    def collect(self) -> list[pytest.Item]:
        raise pytest.skip.Exception(str(missing(self.path.parent.name)), allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Leave a module to pytest, or skip it."""
    package = module_path.parent.name
    if package in ("chainer", "torch") and missing(package) is not None:
        return Skipped.from_parent(parent, path=module_path)
    return None
