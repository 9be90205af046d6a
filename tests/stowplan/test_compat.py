"""Chainer itself, in fresh interpreters: what an import changes cannot be seen twice in one process."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from ..children import printed

needs_chainer = pytest.mark.skipif(
    find_spec("chainer") is None, reason="chainer is not installed; expected: pip install 'stowplan[chainer]'"
)


def run(code: str, *, blocked: str = "") -> str:
    """Run code in a fresh interpreter, in which the modules named in `blocked` cannot be imported."""
    guard = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in blocked.split())
    return printed("-c", guard + code).strip()


@needs_chainer
def test_trains_says_what_it_changed_once_and_leaves_no_name_in_numpy() -> None:
    out = run(
        """
import warnings
import numpy as np
before = set(dir(np)), set(vars(np))
from stowplan.compat import enable_chainer
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    missing = [name for name in ("float", "sctypes") if not hasattr(np, name)]
changes = enable_chainer()
assert all(sum(f"numpy.{name}," in change for change in changes) == 1 for name in missing), changes
assert len(changes) - len(missing) in (0, 1), changes
assert enable_chainer() == ()
assert set(dir(np)) - before[0] <= {"distutils", "rec", "typing", "_typing"}, set(dir(np)) - before[0]
assert not {"float", "sctypes"} & (set(vars(np)) - before[1])
import chainer, chainer.functions as F, chainer.links as L
np.random.seed(0)
model = chainer.Sequential(L.Convolution2D(None, 4, 3), L.BatchNormalization(4), F.relu, L.Linear(None, 5))
optimizer = chainer.optimizers.Adam().setup(model)
x = np.random.rand(8, 1, 9, 9).astype(np.float32)
t = np.random.randint(0, 5, 8).astype(np.int32)
losses = []
for _ in range(40):
    loss = F.softmax_cross_entropy(model(x), t)
    model.cleargrads(); loss.backward(); optimizer.update()
    losses.append(float(loss.array))
print(losses[-1] < losses[0] / 2)
"""
    )
    assert out == "True"


@needs_chainer
def test_functions_that_use_removed_names() -> None:
    out = run(
        """
from stowplan.compat import enable_chainer
enable_chainer()
import numpy as np, chainer, chainer.functions as F
x = chainer.Variable(np.arange(4, dtype=np.float32))
y = F.as_strided(x, (3, 2), (1, 1), 0)
y.grad = np.ones((3, 2), np.float32)
y.backward()
print(x.grad.tolist())
image = chainer.Variable(np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2))
for mode in "bilinear", "nearest":
    print(np.round(F.resize_images(image, (2, 4), mode=mode).array.astype(float), 4).ravel().tolist())
F.sum(F.resize_images(image, (4, 4))).backward()
print(float(image.grad.sum()))
"""
    ).splitlines()
    assert out == [
        "[1.0, 2.0, 2.0, 1.0]",
        "[0.0, 0.3333, 0.6667, 1.0, 2.0, 2.3333, 2.6667, 3.0]",
        "[0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]",
        "16.0",
    ]


@needs_chainer
def test_environment_check_is_left_out_only_where_it_cannot_run() -> None:
    code = """
import sys
from stowplan.compat import enable_chainer
changes = enable_chainer()
import chainer
check = sys.modules["chainer._environment_check"].check
print(any("_environment_check" in change for change in changes), check.__module__)
"""
    assert run(code, blocked="pkg_resources") == "True stowplan.compat"


@needs_chainer
def test_an_import_that_failed_before_is_named() -> None:
    out = run(
        """
import sys
try:
    import chainer
except Exception:
    pass
else:
    raise AssertionError("chainer was to fail without pkg_resources")
assert "chainer" not in sys.modules
from stowplan.compat import enable_chainer
from stowplan.errors import MissingDependencyError
try:
    enable_chainer()
except MissingDependencyError as error:
    print(error)
""",
        blocked="pkg_resources",
    )
    assert out.startswith("chainer was imported before stowplan.compat.enable_chainer() and failed half-way")
