"""Who asked for a block: the user's own code, that is, what belongs neither to Python nor to an installed package."""

from __future__ import annotations

import os
import site
import sysconfig
from types import CodeType

from ._recorder import CallSites

_OWN = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def call_sites() -> CallSites:
    """Return what numbers the call sites of the user's code; `CallSites.sites` names them, ``"file:line function"``."""
    paths = sysconfig.get_paths()
    foreign = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    foreign |= {*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(os.__file__)}
    folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in foreign)

    def is_user_code(code: CodeType) -> bool:
        name = code.co_filename
        if name.startswith("<"):
            return name == "<stdin>" or name.startswith("<ipython")  # not <frozen importlib>, nor <string>
        path = os.path.realpath(name)
        return not path.startswith(folders) and not path.startswith(_OWN_FOLDERS)

    return CallSites(is_user_code)


_OWN_FOLDERS = tuple(
    os.path.join(_OWN, name, "") for name in ("stowplan", "profiler", "allocator", "packing")
)
