"""Chainer 7.8.1 on today's NumPy, Python and CuPy.

Chainer's last release is of 2022. Its numerical code runs unchanged on NumPy 2 and Python 3.13. A few names that it
uses are gone, and :func:`enable_chainer` replaces just these:

===============================  ======================  ===========================================================
what Chainer uses                gone since              what it gets instead
===============================  ======================  ===========================================================
``numpy.distutils``              Python 3.12             nothing: only its check of the environment wants them, and
``pkg_resources``                setuptools 81           that check (macOS, and versions of 2019) is left out
``numpy.sctypes``                NumPy 2.0               the table as it was, seen by ``F.as_strided`` alone
``numpy.float``                  NumPy 1.24              Python's ``float``, which it was, seen by
                                                         ``F.resize_images`` alone
===============================  ======================  ===========================================================

ChainerMN comes with Chainer and is imported when a program does so; then ``compat_chainermn`` patches it.

It leaves no name in NumPy's namespace, where other libraries test for names to tell versions apart, and it changes no
value that Chainer computes. Where NumPy 2 computes otherwise than NumPy 1 (NEP 50: a Python number no longer widens
float16), so does Chainer.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .common.errors import MissingDependencyError
from .compat_chainermn import mend_when_imported, seeing

__all__ = ["enable_chainer"]

_CHECK = "chainer._environment_check"

# The objects of these names in NumPy 1.x.
_REMOVED: dict[str, Any] = {
    "float": float,
    "sctypes": {
        "int": [np.int8, np.int16, np.int32, np.int64],
        "uint": [np.uint8, np.uint16, np.uint32, np.uint64],
        "float": [np.float16, np.float32, np.float64, np.longdouble],
        "complex": [np.complex64, np.complex128, np.clongdouble],
        "others": [bool, object, bytes, str, np.void],
    },
}
# (module, function, its name for NumPy, the name that it needs there)
_USERS = (
    ("chainer.functions.array.as_strided", "AsStridedGrad.forward", "np", "sctypes"),
    ("chainer.functions.array.resize_images", "compute_indices_and_weights", "numpy", "float"),
)


class _NumpyWith(types.ModuleType):
    """NumPy with a name that it used to have, for one Chainer function.

    The function's module keeps NumPy itself: ``F.resize_images`` asks elsewhere whether ``xp is numpy``.
    """

    def __init__(self, name: str) -> None:
        super().__init__("numpy", f"numpy, and numpy.{name} as it was")
        setattr(self, name, _REMOVED[name])

    def __getattr__(self, name: str) -> object:
        return getattr(np, name)


def enable_chainer() -> tuple[str, ...]:
    """Import Chainer, and make it run on the versions of NumPy and Python that are installed.

    Call it before the first ``import chainer``; after it ``import chainer`` works. If Chainer runs as it is, the call
    changes nothing, and nor does a second call.

    Returns
    -------
    tuple of str
        One sentence for each thing changed by this call.

    Raises
    ------
    MissingDependencyError
        Chainer is not installed, or was imported before this call and failed half-way (Python keeps the half that
        succeeded, and a later import would build on it), or fails for another reason.
    """
    _require_importable()
    with importing_chainer() as changes:
        try:
            importlib.import_module("chainer")
        except Exception as error:
            raise MissingDependencyError(
                f"chainer is installed but cannot be imported ({type(error).__name__}: {error})"
            ) from error
    return tuple(changes)


@contextmanager
def importing_chainer() -> Iterator[list[str]]:
    """Have Chainer's own code run, while entered, on the versions that are installed; fill a list with what changes."""
    changes: list[str] = []
    if not hasattr(sys.modules.get("chainer"), "__version__") and not _environment_check_runs():
        module = types.ModuleType(_CHECK, "Left out by stowplan.compat.")
        module.check = lambda: None  # type: ignore[attr-defined]
        sys.modules[_CHECK] = module
        changes.append(
            "chainer._environment_check is left out: it needs numpy.distutils (gone in Python 3.12) "
            "and pkg_resources (gone in setuptools 81)"
        )
    # as_strided's module also reads its name while it is imported, so NumPy has the names during the import.
    with warnings.catch_warnings():
        # NumPy 1.20 to 1.23 warn when numpy.float is read; NumPy 2 warns when it says that a name is gone.
        warnings.simplefilter("ignore")
        removed = {name for *_, name in _USERS if not hasattr(np, name)}
    for name in removed:
        setattr(np, name, _REMOVED[name])
    try:
        yield changes
    finally:
        for name in removed:
            delattr(np, name)
    changes += [sentence for user in _USERS if user[-1] in removed for sentence in _give(*user)]
    mend_when_imported()


def _give(module_name: str, function_name: str, alias: str, name: str) -> Iterator[str]:
    """Rebuild a function with a NumPy that has the name, if it was not rebuilt before; yield the sentence on this."""
    owner: Any = importlib.import_module(module_name)
    *path, attribute = function_name.split(".")
    for part in path:
        owner = getattr(owner, part)
    function: types.FunctionType = getattr(owner, attribute)
    if name not in vars(function.__globals__[alias]):
        setattr(owner, attribute, seeing(function, alias, _NumpyWith(name)))
        yield f"{module_name}.{function_name} sees numpy.{name}, which NumPy {np.__version__} does not have"


def _require_importable() -> None:
    """Raise if Chainer cannot be imported whatever is replaced."""
    loaded = sys.modules.get("chainer")
    if loaded is None and importlib.util.find_spec("chainer") is None:
        raise MissingDependencyError(
            "chainer is not installed; expected: echo 'setuptools<81' > build.txt; PIP_CONSTRAINT=build.txt "
            "PIP_BUILD_CONSTRAINT=build.txt pip install chainer==7.8.1 typing_extensions"
        )
    left_over = loaded is None and any(name.startswith("chainer.") for name in sys.modules if name != _CHECK)
    if left_over or (loaded is not None and not hasattr(loaded, "__version__")):
        raise MissingDependencyError(
            "chainer was imported before stowplan.compat.enable_chainer() and failed half-way; "
            "expected: enable_chainer() first, in a fresh interpreter"
        )


def _environment_check_runs() -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # both are deprecated
            importlib.import_module("numpy.distutils.system_info")
            importlib.import_module("pkg_resources")
    except Exception:  # missing, or broken: an old pkg_resources on Python 3.12 raises AttributeError
        return False
    return True
