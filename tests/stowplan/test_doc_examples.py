"""The examples of the documentation run as they stand there. The one that needs a CUDA device: tests/gpu.

Those of docs/extending.rst, which register something, are in tests/docs.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from textwrap import indent

import pytest

from stowplan.compat import enable_chainer
from stowplan.errors import MissingDependencyError

from ..children import README_CODE, printed

DOCS = Path(__file__).resolve().parents[2] / "docs"
NEEDS_A_DEVICE = {"cupy_training.py"}
NEEDS_TORCH = {"torch_budget.py"}  # tests/integrations/torch
ELSEWHERE = NEEDS_A_DEVICE | NEEDS_TORCH
RUN_HERE = sorted(path.name for path in (DOCS / "examples").glob("*.py") if path.name not in ELSEWHERE)


SMALL = "import stowplan.prediction.fit_function as learning; learning.SHARE = 0.003"
"""Has `predict` learn from runs of megabytes; it takes a tenth of the memory."""
RUN_SMALL = f"""if True:
    import runpy, sys
    {SMALL}
    if __name__ == "__main__":
        runpy.run_path(sys.argv[1], run_name="__main__")
"""


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
    path = DOCS / "examples" / name
    command = ("-c", RUN_SMALL, path) if name.startswith("predict") else (path,)
    said = printed(*command, folder=tmp_path, XDG_CACHE_HOME=str(tmp_path))
    assert ("MiB" if name.startswith("predict") else "replayed") in said


@pytest.mark.parametrize("code", [code for code in README_CODE[1:] if "torch" not in code])
def test_code_of_the_readme_runs_as_it_stands_there(code: str, tmp_path: Path) -> None:
    if "chainer" in code and importlib.util.find_spec("chainer") is None:
        pytest.skip("Chainer is not installed; expected: make test")
    printed("-c", code, folder=tmp_path)


# README_CODE[0]; the one with torch is in tests/integrations/torch.
def test_the_readme_says_what_its_first_code_prints(tmp_path: Path) -> None:
    said = printed("-c", README_CODE[0], folder=tmp_path).removesuffix(" allocations came from the plan\n")
    assert said == README_CODE[0].rpartition("# ")[2].strip()


def test_each_example_stands_on_a_page_as_it_is_run() -> None:
    pages = [page.read_text(encoding="utf-8") for page in DOCS.glob("*.rst")]
    for path in (DOCS / "examples").rglob("*.py"):
        assert any(indent(path.read_text(encoding="utf-8"), "   ") in page for page in pages), path
    assert {path.name for path in (DOCS / "examples").glob("*.py")} >= ELSEWHERE
