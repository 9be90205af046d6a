"""NumPy's own memory handler, whatever serves here. A leaf."""

from __future__ import annotations

import contextvars
from typing import Any

from ._recorder import current_handler


def default_handler() -> Any:
    """Return NumPy's default memory handler (a capsule), the one of a new context."""
    return contextvars.Context().run(current_handler)
