"""Every operator of PyTorch's own tests that has a backward pass, in steps plain and within the least budget.

`torch.testing._internal` has arguments for each; these steps take the first that are there, in float32.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("expecttest", reason="PyTorch's own tests need expecttest; expected: make torch-test")

import torch
from torch import Tensor, nn
from torch.testing._internal import common_methods_invocations as samples
from torch.utils import _pytree as pytree

from stowplan.errors import BudgetError, GraphError
from stowplan.torch import Meter, ScheduledTraining, schedule

from .steps import sgd

PARTS = 12

VALUES, EFFECTS = "depend|Data dependent|Dynamic shape|data-dependent|not allocated|values", "effects"
REFUSED = {
    "combinations": VALUES,
    "corrcoef": VALUES,
    "cov": VALUES,
    "linalg.cholesky": EFFECTS,
    "linalg.eig": EFFECTS,
    "linalg.eigvals": EFFECTS,
    "linalg.inv": EFFECTS,
    "linalg.lstsq": VALUES,
    "linalg.lu_factor": EFFECTS,
    "linalg.solve": EFFECTS,
    "linalg.tensorinv": EFFECTS,
    "linalg.tensorsolve": EFFECTS,
    "masked_select": VALUES,
    "nn.functional.ctc_loss": VALUES,
    "nn.functional.gaussian_nll_loss": VALUES,
    "tensor_split": VALUES,
    "to_sparse": "sparse",
}
"""What depends on values, checks them while it runs, or makes sparse tensors."""


class Step(nn.Module):
    """An operator on what was made of a parameter, and the sum of its results."""

    def __init__(self, operator: Any, sample: Any) -> None:
        super().__init__()
        self.parameter = nn.Parameter(sample.input.detach().clone())
        self.operator, self.sample = operator, sample

    def forward(self) -> Tensor | None:
        x = self.parameter * 1.5
        found = self.operator(x + 0 * torch.relu(x), *self.sample.args, **self.sample.kwargs)
        results = [one for one in pytree.tree_leaves(found) if isinstance(one, Tensor) and one.requires_grad]
        return sum((one.abs() if one.is_complex() else one).sum() for one in results) if results else None

    def trained(self) -> tuple[Tensor, ...] | None:
        """Return the loss and the parameter after a plain step; None where the operator has no such step."""
        torch.manual_seed(1)
        try:
            loss = self()
            if loss is None:
                return None
            loss.backward()
        except (NotImplementedError, RuntimeError):
            return None
        sgd(self).step()
        return loss.detach(), self.parameter


def steps(part: int) -> Iterator[tuple[str, Step]]:
    """Yield a step for each operator of a part, of its first sample."""
    for info in samples.op_db[part::PARTS]:
        if not info.supports_autograd or not info.supports_dtype(torch.float32, "cpu"):
            continue
        sample = next(iter(info.sample_inputs_func(info, "cpu", torch.float32, False)), None)
        given = None if sample is None else sample.input
        if isinstance(given, Tensor) and given.is_floating_point() and given.layout == torch.strided:
            yield info.name, Step(info, sample)


def least(step: Step) -> ScheduledTraining:
    """Return a training of a step within the least budget."""
    try:
        training = schedule(step, sgd(step), budget=0)
        training.plan()
    except BudgetError as error:
        training = schedule(step, sgd(step), budget=error.least)
    return training


KNOWN = torch.__version__.startswith("2.13.")
"""Whether it is known which operators this version refuses; of others all that is known is that the bits are equal."""


@pytest.mark.parametrize("part", range(PARTS))
def test_bits_and_bytes(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        samples, "wrapper_set_seed", lambda operator, *args, **kwargs: operator(*args, **kwargs)
    )
    ran = 0
    for name, step in steps(part):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of operators that are deprecated
            twin = copy.deepcopy(step)
            expected = step.trained()
            if expected is None:
                continue
            if name in REFUSED and KNOWN:
                with pytest.raises(GraphError, match=REFUSED[name]):
                    schedule(twin, sgd(twin)).plan()
                continue
            torch._dynamo.reset()
            try:
                training = schedule(twin, sgd(twin)) if ran % 4 else least(twin)
                stats = training.plan()
            except GraphError:
                assert not KNOWN, name
                continue
            torch.manual_seed(1)
            meter = Meter()
            with meter:
                loss = training.step()
        assert max(meter.live) <= stats.peak - stats.resident, name
        assert training.plain_steps == 0, name
        torch.testing.assert_close((loss, twin.parameter), expected, equal_nan=True, msg=name, rtol=0, atol=0)
        ran += 1
    assert ran > 33
