"""In which order? From a step graph to the order of its operators with the least live peak, without recomputation."""

from .order import OrderSolution, Progress, order
from .registry import solvers

__all__ = ["OrderSolution", "Progress", "order", "solvers"]
