"""PyTorch's names that are not public stand in one file, and a version that was not tried says so."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import stowplan.torch

ROOM = Path(stowplan.torch.__file__).parent
FILES = sorted(path for path in ROOM.glob("*.py") if path.name != "seams.py")
OWN = set(re.findall(r"(?:def |self\.)(_[a-z]\w*)", "".join(path.read_text() for path in FILES)))
OPERATORS = ("aten", "torch.ops.aten")


def private(path: Path) -> list[str]:
    """Return what a file has of others that is not public."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found += [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            found += [one.name for one in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) not in OPERATORS:
            found += [f".{node.attr}"] if node.attr not in OWN else []
    return [name for name in found if re.search(r"\._[a-z]", name)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_names_that_are_not_public_stand_in_one_file(path: Path) -> None:
    assert private(path) == []


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.10.9", "MissingDependencyError: PyTorch is 2.10.9; stowplan.torch needs 2.11 or later"),
        ("9.0.0", "UserWarning: stowplan.torch was tried with PyTorch 2.14 at most, and this is 9.0.0"),
        (torch.__version__, None),
    ],
)
def test_versions_that_were_not_tried_are_refused_or_warn_once(version: str, said: str | None) -> None:
    code = (
        f"import torch; torch.__version__ = {version!r}; import stowplan.torch; import stowplan.torch.seams"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if "PyTorch" in line]
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]


def test_nothing_of_pytorchs_is_replaced() -> None:
    code = """
import torch, torch._dynamo, torch._dynamo.convert_frame, torch._dynamo.variables.torch as V
def names():
    handlers = V.TorchInGraphFunctionVariable._get_handlers()
    mods = (torch, torch.compiler, torch._dynamo, torch._dynamo.convert_frame, torch.optim.Optimizer, torch.Tensor)
    return [dict(handlers)] + [{k: v for k, v in vars(one).items() if callable(v)} for one in mods]
module = torch.nn.Linear(4, 4)
torch.compile(module, backend="eager")(torch.ones(2, 4))  # Dynamo's own
before = names()
import stowplan.torch
training = stowplan.torch.schedule(module, torch.optim.SGD(module.parameters(), 0.1), lambda m, x: m(x).sum())
training.step(torch.ones(2, 4))
assert [{k for k in a if a[k] is not b.get(k)} for a, b in zip(before, names())] == [set()] * len(before)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
