"""Pictures, by matplotlib: ``placement`` (blocks in the arena), ``orders`` and ``schedules`` (of step graphs).

``style`` has what all of them share: colours, axes, and how a picture becomes a file. matplotlib is imported when a
picture is made, and needs no display.
"""

from __future__ import annotations

from .orders import save_orders
from .placement import save_placement
from .schedules import save_curve
from .style import require_matplotlib

__all__ = ["require_matplotlib", "save_curve", "save_orders", "save_placement"]
