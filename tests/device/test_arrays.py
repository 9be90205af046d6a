"""CuPy's functions on the simulated device beside NumPy's, each with kernels of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

DRAW = np.random.default_rng(0)
X = DRAW.standard_normal((37, 53)).astype("f")
Y = DRAW.standard_normal((37, 53))
Z = DRAW.standard_normal((53, 41)).astype("f")
Function = Callable[[Any, Callable[[Any], Any]], Any]
"""A function of a module, NumPy or CuPy, and of what makes one of its arrays."""

EXACT: dict[str, Function] = {
    "add": lambda xp, a: a(X) + a(Y),
    "maximum": lambda xp, a: xp.maximum(a(X), 0),
    "argmax": lambda xp, a: a(X).argmax(axis=1),
    "max": lambda xp, a: a(X).max(),
    "product of integers": lambda xp, a: xp.arange(1, 11).prod(),
    "where": lambda xp, a: xp.where(a(X) > 0, a(X), a(Y)),
    "fancy index": lambda xp, a: a(X)[a([1, 3, 1])],
    "mask": lambda xp, a: a(X)[a(X) > 0],
    "concatenate": lambda xp, a: xp.concatenate([a(X), a(X)], axis=1),
    "transpose": lambda xp, a: xp.ascontiguousarray(a(X).T),
    "pad": lambda xp, a: xp.pad(a(X), 2),
    "bincount": lambda xp, a: xp.bincount(a([1, 2, 2, 5])),
    "any": lambda xp, a: (a(X) > 3).any(),
    "clip": lambda xp, a: a(X).clip(-1, 1),
    "half": lambda xp, a: a(X.astype("e")) * 2 + 1,
    "half to float": lambda xp, a: a(X.astype("e")).astype("f"),
    "float to half": lambda xp, a: a(X).astype("e"),
    "shift": lambda xp, a: xp.left_shift(a([1, 2, 3]), 4),
    "popcount of booleans": lambda xp, a: xp.count_nonzero(a(X) > 0, axis=0),
    "unpackbits": lambda xp, a: xp.unpackbits(a(np.arange(7, dtype="B"))),
    "searchsorted": lambda xp, a: xp.searchsorted(a(np.arange(9.0)), a([3.5, -1.0, 20.0])),
    "roll": lambda xp, a: xp.roll(a(X), 3, axis=0),
    "tril": lambda xp, a: xp.tril(a(X)),
    "divmod": lambda xp, a: xp.divmod(a([7, -7, 9]), a([2, 2, -4]))[1],
}
"""The same bits: a rounding or none, and no sum whose order could be another."""
CLOSE: dict[str, Function] = {
    "exp": lambda xp, a: xp.exp(a(X)),
    "log1p": lambda xp, a: xp.log1p(xp.abs(a(X))),
    "sum": lambda xp, a: a(X).sum(),
    "sum of columns": lambda xp, a: a(X).sum(axis=0),
    "sum of rows": lambda xp, a: a(X).sum(axis=1),
    "variance": lambda xp, a: a(Y).var(axis=1),
    "matmul": lambda xp, a: a(X) @ a(Z),
    "matmul of transposed": lambda xp, a: a(Z).T @ a(X).T,
    "matmul of doubles": lambda xp, a: a(Y) @ a(Y).T,
    "matmul of stacks": lambda xp, a: xp.matmul(a(np.stack([X, X])), a(np.stack([Z, 2 * Z]))),
    "tensordot": lambda xp, a: xp.tensordot(a(X), a(Z), 1),
    "dot of vectors": lambda xp, a: xp.dot(a(X[0]), a(X[1])),
    "dot with a vector": lambda xp, a: xp.dot(a(X), a(Z[:, 0].copy())),
    "outer": lambda xp, a: xp.outer(a(X[0]), a(Z[0])),
    "complex": lambda xp, a: xp.exp(a(X.astype("F")) * 1j),
    "matmul of complex": lambda xp, a: a((X + 1j).astype("F")) @ a((Z - 1j).astype("F")),
    "cumsum": lambda xp, a: xp.cumsum(a(Y)),
    "norm": lambda xp, a: xp.linalg.norm(a(X)),
    "einsum": lambda xp, a: xp.einsum("ij,jk->ik", a(X), a(Z)),
    "logaddexp": lambda xp, a: xp.logaddexp(a(X), a(Y)),
    "interp": lambda xp, a: xp.interp(a([0.5, 1.5]), a([0.0, 1, 2]), a([0.0, 10, 40])),
}


def on_both(cupy: Any, function: Function) -> tuple[Any, Any]:
    return cupy.asnumpy(function(cupy, cupy.asarray)), np.asarray(function(np, np.asarray))


@pytest.mark.parametrize("name", EXACT)
def test_the_same_bits_as_numpy_s(cupy: Any, name: str) -> None:
    found, expected = on_both(cupy, EXACT[name])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", CLOSE)
def test_close_to_numpy_s(cupy: Any, name: str) -> None:
    found, expected = on_both(cupy, CLOSE[name])
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_a_product_of_halves(cupy: Any) -> None:
    x, z = X.astype("e"), Z.astype("e")
    found = cupy.asnumpy(cupy.asarray(x) @ cupy.asarray(z)).astype("f")
    np.testing.assert_allclose(found, x.astype("f") @ z.astype("f"), rtol=2e-3, atol=2e-2)


def test_additions_to_the_same_element(cupy: Any) -> None:
    a = cupy.zeros(5)
    cupy.add.at(a, cupy.asarray([1, 1, 2]), 1.0)
    assert a.get().tolist() == [0, 2, 1, 0, 0]


def test_draws_have_their_moments_and_their_seed(cupy: Any) -> None:
    def draws() -> tuple[Any, Any]:
        generator = cupy.random.RandomState(1)
        return generator.uniform(size=100_000).get(), generator.normal(size=100_000).get()

    uniform, normal = draws()
    assert abs(uniform.mean() - 0.5) < 0.005
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02
    again = draws()
    assert uniform.tobytes() == again[0].tobytes()
    assert normal.tobytes() == again[1].tobytes()


@pytest.mark.parametrize("axes", [None, (0,), (1,), (0, 2, 3), (1, 3)])
def test_a_sum_is_the_sum_of_halves(cupy: Any, axes: tuple[int, ...] | None) -> None:
    """Whole numbers: each order of the additions gives the same, and one that is left out another."""
    a = np.arange(3 * 5 * 7 * 11, dtype="f").reshape(3, 5, 7, 11)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(a).sum(axis=axes)), a.sum(axis=axes))
