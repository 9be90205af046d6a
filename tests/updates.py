"""Boundaries between steps: updates of a real optimizer that has nothing to update. Each ends a step that is told."""

from __future__ import annotations

import functools
from typing import Any

from stowplan.compat import enable_chainer


def update() -> None:
    """Have an optimizer update, Chainer's or, where there is no Chainer, PyTorch's; it asks for no memory."""
    optimizer = _optimizer()
    optimizer.update() if hasattr(optimizer, "update") else optimizer.step()


@functools.cache
def _optimizer() -> Any:
    try:
        enable_chainer()
        import chainer
    except ImportError:
        import torch

        return torch.optim.SGD([torch.zeros(1)])  # without gradients
    optimizer = chainer.optimizers.SGD()
    optimizer.setup(chainer.Link())
    return optimizer
