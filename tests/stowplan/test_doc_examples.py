"""The examples of the documentation run as they stand there. The one that needs a CUDA device: tests/gpu.

Those of docs/extending.rst, which register something, are in tests/docs.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from stowplan.compat import enable_chainer
from stowplan.errors import MissingDependencyError

from ..children import printed

DOCS = Path(__file__).resolve().parents[2] / "docs"
NEEDS_A_DEVICE = {"cupy_training.py"}
RUN_HERE = sorted(path.name for path in (DOCS / "examples").glob("*.py") if path.name not in NEEDS_A_DEVICE)


@pytest.mark.parametrize("name", RUN_HERE)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    if "chainer" in name:
        try:
            enable_chainer()
        except MissingDependencyError as error:
            pytest.skip(str(error))
    if name.endswith("dask.py") and importlib.util.find_spec("distributed") is None:
        pytest.skip("Dask is not installed; expected: pip install 'stowplan[dask]'")
    if name.startswith("cupy") and importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed; expected: pip install 'stowplan[cupy]'")
    # A process of its own: the C library remembers how large blocks were, and the page faults of the next depend on it.
    said = printed(DOCS / "examples" / name, folder=tmp_path, XDG_CACHE_HOME=str(tmp_path))
    assert ("MiB" if name.startswith("predict") else "replayed") in said


def test_the_first_code_of_the_readme_runs(tmp_path: Path) -> None:
    try:
        enable_chainer()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    code = re.findall(
        r"^```python\n(.*?)^```", (DOCS.parent / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )[0]
    assert "replayed" in printed("-c", code, folder=tmp_path)


def test_each_example_is_on_a_page() -> None:
    shown = {
        name
        for page in DOCS.glob("*.rst")
        for name in re.findall(r"literalinclude:: examples/(\S+)", page.read_text(encoding="utf-8"))
    }
    examples = DOCS / "examples"
    assert shown == {path.relative_to(examples).as_posix() for path in examples.rglob("*.py")}
    assert shown >= NEEDS_A_DEVICE
