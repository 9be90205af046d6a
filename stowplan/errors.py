"""Every error that stowplan raises by itself, in one small tree.

Each class also derives from the built-in exception that a caller would expect, so ``except ValueError`` works as well.
"""

from .common.errors import *  # noqa: F403

__all__ = [name for name, one in [*globals().items()] if isinstance(one, type) and issubclass(one, Exception)]
