"""In which order? From a step graph to the order of its operators with the least live peak, without recomputation."""

from .order import OrderSolution, Progress, order
from .problem import OrderProblem
from .registry import Answer, Options, register, solvers

__all__ = ["Answer", "Options", "OrderProblem", "OrderSolution", "Progress", "order", "register", "solvers"]
