"""In which order? From a step graph to the order of its operators with the least live peak, without recomputation."""

from .order import OrderingProgress, OrderSolution, order
from .problem import OrderProblem
from .registry import Answer, OrderingOptions, register, solvers

__all__ = [
    "Answer",
    "OrderProblem",
    "OrderSolution",
    "OrderingOptions",
    "OrderingProgress",
    "order",
    "register",
    "solvers",
]
