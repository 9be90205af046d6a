"""PyTorch: make the step graph of a module's ATen operators, and a module that runs them in a better order.

================  ======================================================================================================
module            what it is
================  ======================================================================================================
``tracing``       makes a `torch.fx.GraphModule` of ATen operators of a module and inputs: inference, or a training step
``step_graph``    makes a `stowplan.scheduling.StepGraph` of such a graph module: storages, hazards, phases
``reordering``    the same operators in the order that `stowplan.scheduling.ordering` finds
``meter``         measures the live peak of a real run: storages, counted at every operator
================  ======================================================================================================

::

    step = trace_training(module, inputs, loss, targets, learning_rate=0.1)
    better = reorder(step)                       # the same parameters, the same results, bit by bit
    better.meta["order"].peak                    # bytes, as `measure(better, *inputs, *targets).peak` finds them

Importing this package imports PyTorch.
"""

try:
    import torch as _torch  # noqa: F401 (whether it is there)
except ImportError as error:
    from ..errors import MissingDependencyError

    raise MissingDependencyError(
        f"PyTorch cannot be imported ({error}); stowplan.torch needs it: pip install 'stowplan[torch]'"
    ) from None

from .meter import Measurement, measure
from .reordering import in_order, reorder
from .step_graph import graph, operators
from .tracing import trace, trace_training

__all__ = ["Measurement", "graph", "in_order", "measure", "operators", "reorder", "trace", "trace_training"]
