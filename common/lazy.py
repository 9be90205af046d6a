"""Names of a package that are imported when they are first used, so that what a program does not need costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, modules: Mapping[str, str | None]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__``.

    Parameters
    ----------
    package
        The module's ``__name__``.
    modules
        Name to the module that has it, relative to the package; None: the name is a module's own.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import sys
        from importlib import import_module

        owner = modules[name]
        module = import_module(f".{owner or name}", package)
        value = module if owner is None else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get
