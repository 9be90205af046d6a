"""The plan: from a profile to a problem, its placement and what is ready to replay."""

from .plan import UNPLANNED, Plan, make_plan, problem_of

__all__ = ["UNPLANNED", "Plan", "make_plan", "problem_of"]
