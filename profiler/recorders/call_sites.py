"""Which line of the user's own code requested a block: code that is neither Python's nor of an installed package."""

from __future__ import annotations

import os
import site
import sysconfig
from types import CodeType

from .._recorder import CallSites

ROOMS = (
    *("stowplan", "common", "profiler", "scheduling", "packing", "planning", "allocator", "prediction"),
    *("integrations", "papers"),
)
"""The folders of a checkout that have stowplan's code (tools/rooms.txt)."""


def _own_folders(top: str) -> tuple[str, ...]:
    """Return stowplan's folders: the package's own, or in a checkout its rooms, which stand side by side at the top."""
    if os.path.exists(os.path.join(top, "__init__.py")):
        return (os.path.join(top, ""),)
    return tuple(os.path.join(top, name, "") for name in ROOMS)


_OWN_FOLDERS = _own_folders(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))


def call_sites(stacks: int = 0, callers: int = 0) -> CallSites:
    """Return an object that numbers the call sites of the user's code, and names them: ``"file:line function"``.

    Parameters
    ----------
    stacks
        Where other code asked, called by the user's: how many of its innermost frames follow, with ``>`` between.
    callers
        How many frames of the user's that called its innermost one go before it.
    """
    paths = sysconfig.get_paths()
    foreign = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    foreign |= {*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(os.__file__)}
    folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in foreign)

    def is_user_code(code: CodeType) -> bool | None:
        name = code.co_filename
        if name.startswith("<"):
            return name == "<stdin>" or name.startswith("<ipython")  # not <frozen importlib>, nor <string>
        path = os.path.realpath(name)
        return None if path.startswith(_OWN_FOLDERS) else not path.startswith(folders)

    return CallSites(is_user_code, stacks, callers)
