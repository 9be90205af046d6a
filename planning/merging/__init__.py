"""One plan for steps whose structure differs: the plan that there is and one more step, merged."""

from .merge import merge
from .merged import Merged

__all__ = ["Merged", "merge"]
