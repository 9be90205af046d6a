"""Compilers of graphs for ``torch.compile`` that count what the graphs have alive."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from stowplan.torch import Meter


def metered(meters: list[Meter]) -> Any:
    """Return a compiler of graphs that run in the meter, if there is one; dynamo accepts none around them."""

    def compiler(module: torch.fx.GraphModule, _: Any) -> Any:
        def run(args: list[Any]) -> Any:
            with meters[0] if meters else nullcontext():
                return torch.fx.Interpreter(module).boxed_run(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    return compiler


def partitioned(meters: list[Meter]) -> Any:
    """Return ``aot_eager`` with graphs that run in the meter, if there is one."""
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(
        fw_compiler=metered(meters),
        bw_compiler=metered(meters),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
