"""PyTorch: step graphs of a module's ATen operators, better orders of them, and training within a budget of bytes.

================  ======================================================================================================
module            what it is
================  ======================================================================================================
``tracing``       makes a `torch.fx.GraphModule` of ATen operators of a module and inputs: inference, or a training step
``shrinking``     losses whose results hold on to more bytes than they have let go of them
``step_graph``    makes a `stowplan.scheduling.StepGraph` of such a graph module: storages, hazards, phases
``reordering``    the same operators in the order that `stowplan.scheduling.ordering` finds
``meter``         measures the live peak of a real run: storages, counted at every operator
``scheduler``     training steps within a budget of bytes: `schedule`
``updates``       the optimizer's part of such a step, early, parameter by parameter
``costs``         seconds of operators, estimated
``rewriting``     a graph module that runs a schedule, with what it recomputes and swaps
``evictions``     tensors that go to a file, and come back
================  ======================================================================================================

::

    step = trace_training(module, inputs, loss, targets, learning_rate=0.1)
    better = reorder(step)                       # the same parameters, the same results, bit by bit
    better.meta["order"].peak                    # bytes, as `measure(better, *inputs, *targets).peak` finds them

    training = schedule(model, optimizer, loss, budget="2 GiB", swap=True)
    training.step(x, y)                          # forward, backward, update; the same bits

    compiled = torch.compile(model, backend=compile_backend("2 GiB"), dynamic=False)   # forward and backward

Importing this package imports PyTorch.
"""

try:
    import torch as _torch  # noqa: F401 (whether it is there)
except ImportError as error:
    from ..errors import MissingDependencyError

    raise MissingDependencyError(
        f"PyTorch cannot be imported ({error}); stowplan.torch needs it: pip install 'stowplan[torch]'"
    ) from None

from .compiling import CompileBackend, GraphStats, compile_backend
from .meter import Measurement, Meter, measure
from .reordering import in_order, reorder
from .scheduler import ScheduledTraining, StepStats, schedule
from .step_graph import graph, operators
from .tracing import trace, trace_training

__all__ = [
    "CompileBackend",
    "GraphStats",
    "Measurement",
    "Meter",
    "ScheduledTraining",
    "StepStats",
    "compile_backend",
    "graph",
    "in_order",
    "measure",
    "operators",
    "reorder",
    "schedule",
    "trace",
    "trace_training",
]
