"""The public names that a release has: whoever imports one goes on to find it."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = (ROOT / "tests" / "data" / "public_names.txt").read_text().split()
OF_TORCH = "stowplan.torch"
"""A module that cannot be imported without PyTorch: its names are read from its source."""


def _offered(module: str) -> set[str]:
    """Return the names that a module offers, each of them there."""
    if module == OF_TORCH:
        tree = ast.parse((ROOT / "integrations" / "torch" / "__init__.py").read_text())
        assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
        lists = [node.value for node in assigned if "__all__" in ast.unparse(node)]
        return {str(name) for name in ast.literal_eval(lists[0])}
    found = import_module(module)
    return {name for name in found.__all__ if hasattr(found, name)}


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name in NAMES}))
def test_the_public_names_of_a_module_are_those_of_the_snapshot(module: str) -> None:
    snapshot = {name.rpartition(".")[2] for name in NAMES if name.rpartition(".")[0] == module}
    assert _offered(module) == snapshot
