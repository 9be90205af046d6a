"""PyTorch: step graphs of a module's ATen operators, better orders of them, and training within a budget of bytes.

================  ======================================================================================================
module            what it is
================  ======================================================================================================
``capture``       a function as one graph of ATen operators, guarded by Dynamo, made functional by AOTAutograd
``eager``         such a graph with the bits of the program outside of a graph
``seams``         the names of PyTorch's that are not public; all others are in no other file
``nodes``         what nodes are: operators, names of results, writes in place, random draws
``shrinking``     results that hold on to more bytes than they have
``tracing``       a `torch.fx.GraphModule` of a module and inputs: inference, or a training step
``joint``         AOTAutograd's graph of forward and backward, as it is to be scheduled
``step_graph``    makes a `stowplan.scheduling.StepGraph` of such a graph module: storages, hazards, phases
``costs``         seconds of operators, estimated
``reordering``    the same operators in the order that `stowplan.scheduling.ordering` finds
``meter``         measures the live peak of a real run: storages, counted at every operator
``live``          the same, predicted from a graph
``scheduler``     training steps within a budget of bytes: `schedule`; ``plans`` makes the plans, within ``budgets``
``guards``        what PyTorch's guards do not see: looked at before each step, or refused
``updates``       the optimizer's part of such a step, as operators: where in the step, and the bytes of that
``rewriting``     a graph module that runs a schedule, with what it recomputes
``compiling``     a backend of ``torch.compile`` within a budget
================  ======================================================================================================

::

    step = trace_training(module, inputs, loss, targets, learning_rate=0.1)
    better = reorder(step)                       # the same parameters, the same results, bit by bit
    better.meta["order"].peak                    # bytes, as `measure(better, *inputs, *targets).peak` finds them

    training = schedule(model, optimizer, loss, budget="2 GiB")
    training.step(x, y)                          # forward, backward, update; the same bits

    compiled = torch.compile(model, backend=compile_backend("2 GiB"), dynamic=False)   # forward and backward

Importing this package imports PyTorch.
"""

from ..common.errors import MissingDependencyError

try:
    import torch as _torch
except ImportError as error:
    raise MissingDependencyError(
        f"PyTorch cannot be imported ({error}); stowplan.torch needs it: pip install '.[torch]' in stowplan's clone"
    ) from None

if tuple(int(part) for part in _torch.__version__.split(".")[:2]) < (2, 11):
    raise MissingDependencyError(
        f"PyTorch is {_torch.__version__}; stowplan.torch needs 2.11 or later: "
        "pip install '.[torch]' in stowplan's clone"
    )

from .budgets import GraphStats
from .compiling import CompileBackend, compile_backend
from .meter import Measurement, Meter, measure
from .plans import StepStats
from .reordering import in_order, reorder
from .scheduler import ScheduledTraining, schedule
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
