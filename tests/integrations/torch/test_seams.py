"""A version of PyTorch that was not tried says so; nothing of PyTorch's is replaced."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.10.9", "MissingDependencyError: PyTorch is 2.10.9; stowplan.torch needs 2.11 or later"),
        ("9.0.0", "UserWarning: stowplan.torch was tried with PyTorch 2.15 at most, and this is 9.0.0"),
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
