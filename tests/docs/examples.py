"""The examples of docs/extending.rst as modules."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from stowplan.packing.registry import _solvers as packing_solvers
from stowplan.profiler.formats.registry import _formats as formats
from stowplan.scheduling.ordering.registry import _solvers as order_solvers
from stowplan.scheduling.registry import _solvers as schedule_solvers

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "extending"
REGISTRIES: tuple[dict[str, Any], ...] = (packing_solvers, schedule_solvers, order_solvers, formats)


def example(name: str) -> ModuleType:
    """An example as a module."""
    full = f"docs_examples_extending_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


@contextmanager
def registered(*names: str) -> Iterator[None]:
    """Have what examples register in its registry, for as long as this lasts."""
    before = [dict(registry) for registry in REGISTRIES]
    for name in names:
        example(name)
    try:
        yield
    finally:
        for registry, known in zip(REGISTRIES, before, strict=True):
            registry.clear()
            registry.update(known)
        for name in names:
            del sys.modules[f"docs_examples_extending_{name}"]
