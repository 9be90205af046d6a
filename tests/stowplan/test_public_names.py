"""The public names that a release has: whoever imports one goes on to find it."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from stowplan.errors import MissingDependencyError

ROOT = Path(__file__).resolve().parents[2]
NAMES = (ROOT / "tests" / "data" / "public_names.txt").read_text().split()


def _offered(module: str) -> set[str]:
    """Return the names that a module offers, each of them there; by its source where its library is not installed."""
    try:
        found = import_module(module)
    except MissingDependencyError:
        tree = ast.parse((ROOT / "integrations" / module.rpartition(".")[2] / "__init__.py").read_text())
        assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
        lists = [node.value for node in assigned if "__all__" in ast.unparse(node)]
        return {str(name) for name in ast.literal_eval(lists[0])}
    return {name for name in found.__all__ if hasattr(found, name)}


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name in NAMES}))
def test_the_public_names_of_a_module_are_those_of_the_snapshot(module: str) -> None:
    snapshot = {name.rpartition(".")[2] for name in NAMES if name.rpartition(".")[0] == module}
    assert _offered(module) == snapshot
