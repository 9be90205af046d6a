"""Reversible layers: the gradients of the network kept whole, to rounding; a peak that does not grow with depth."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stowplan.errors import MissingDependencyError

try:
    from stowplan.papers.mlsys2023.reversible import Reversible, ReversibleSequence, RevSilo
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812

from ...running import traced

WIDTH = 12
TOLERANCE = {np.float32: 1e-4, np.float64: 1e-9}


class Layer(chainer.Chain):  # type: ignore[misc]
    """Linear, normalized, dropped out: what is hard to run twice; from one resolution to another."""

    def __init__(
        self, dtype: Any, normal: bool = True, dropout: float = 0.3, source: int = 0, target: int = 0
    ) -> None:
        super().__init__()
        self.dropout = dropout
        with self.init_scope(), chainer.using_config("dtype", dtype):
            self.linear = L.Linear(WIDTH >> source, WIDTH >> target)
            self.normal = L.BatchNormalization(WIDTH >> target, dtype=dtype) if normal else None

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        y = y if self.normal is None else self.normal(y)
        return F.dropout(F.tanh(y), self.dropout)


def plain(sequence: Any, *x: Any) -> tuple[Any, ...]:
    """The same network without reversing anything."""
    streams = list(x)
    for target, source, function, _ in sequence.steps():
        streams[target] = streams[target] + function(streams[source])
    return tuple(streams)


def stack(depth: int, dtype: Any = np.float64, make: Callable[[Any], Any] = Layer) -> Any:
    np.random.seed(0)
    return cleared(ReversibleSequence(*(Reversible(make(dtype), make(dtype)) for _ in range(depth))))


def cleared(net: Any) -> Any:
    """Without gradients: a new parameter's is NaN in Chainer."""
    net.cleargrads()
    return net


def inputs(dtype: Any = np.float64, rows: int = 9) -> list[Any]:
    generator = np.random.default_rng(3)
    return [chainer.Variable(generator.standard_normal((rows, WIDTH)).astype(dtype)) for _ in range(2)]


def gradients(
    run: Callable[..., Any], net: Any, dtype: Any, both: bool = True, seed: int = 7
) -> tuple[list[Any], dict[str, Any], Any]:
    """Return outputs and input gradients, the parameters' gradients and statistics, and what is drawn next."""
    np.random.seed(seed)
    xs = inputs(dtype)
    y1, y2 = run(net, *xs)
    loss = F.sum(y1 * y1) + F.sum(F.sin(y2)) if both else F.sum(F.sin(y2))
    outputs = [y1.array.copy(), y2.array.copy()]
    del y1, y2
    loss.backward()
    named = {name: param.grad for name, param in net.namedparams()}
    for name, link in net.namedlinks():
        if isinstance(link, L.BatchNormalization):
            named[name + "/mean"], named[name + "/var"] = link.avg_mean.copy(), link.avg_var.copy()
    drawn = np.random.random()
    return [*outputs, *(x.grad for x in xs)], named, drawn


def close(first: Any, second: Any, dtype: Any) -> None:
    tolerance = TOLERANCE[dtype]
    for a, b in zip(first[0], second[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    assert first[1].keys() == second[1].keys()
    for name, a in first[1].items():
        b = second[1][name]
        assert np.isfinite(b).all(), name
        np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance * max(1, np.abs(b).max()), err_msg=name
        )
    assert first[2] == second[2], "the random generator"


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("both", [True, False])
def test_gradients_are_those_of_the_network_kept_whole(dtype: Any, both: bool) -> None:
    reverse = gradients(lambda net, *xs: net(*xs), stack(5, dtype), dtype, both)
    whole = gradients(plain, stack(5, dtype), dtype, both)
    assert (reverse[0][0] == whole[0][0]).all()
    assert (reverse[0][1] == whole[0][1]).all()
    close(reverse, whole, dtype)


def test_parameters_shared_by_blocks_and_within_a_block() -> None:
    def shared(dtype: Any) -> Any:
        np.random.seed(0)
        layer, other = Layer(dtype, normal=False), Layer(dtype, normal=False)
        blocks = Reversible(layer, layer), Reversible(other, layer), Reversible(layer, other)
        return cleared(ReversibleSequence(*blocks))

    close(
        gradients(lambda net, *xs: net(*xs), shared(np.float64), np.float64),
        gradients(plain, shared(np.float64), np.float64),
        np.float64,
    )


def test_without_a_graph_nothing_is_kept_and_values_are_the_same() -> None:
    net = stack(3)
    with chainer.using_config("train", False):
        kept = net(*inputs())
        with chainer.no_backprop_mode():
            free = net(*inputs())
    assert all((a.array == b.array).all() for a, b in zip(kept, free, strict=True))
    assert all(y.creator_node is None for y in free)


def test_backward_runs_in_the_configuration_of_forward() -> None:
    net = stack(2)
    with chainer.using_config("train", False):
        xs = inputs()
        y1, y2 = net(*xs)
    F.sum(y1 * y2).backward()
    expected = inputs()
    with chainer.using_config("train", False):
        y1, y2 = plain(net, *expected)
        F.sum(y1 * y2).backward()
    for a, b in zip(xs, expected, strict=True):
        np.testing.assert_allclose(a.grad, b.grad, rtol=1e-9)


# --- any number of resolutions --------------------------------------------------------------------------------------


def silos(depth: int, count: int, dtype: Any = np.float64, dropout: float = 0.3) -> Any:
    np.random.seed(0)
    made = (RevSilo(count, lambda s, t: Layer(dtype, True, dropout, s, t)) for _ in range(depth))
    return cleared(ReversibleSequence(*made))


def resolutions(count: int, dtype: Any = np.float64, rows: int = 9) -> list[Any]:
    rng = np.random.RandomState(1)
    return [chainer.Variable(rng.randn(rows, WIDTH >> k).astype(dtype)) for k in range(count)]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_silo_is_the_papers_formula(count: int) -> None:
    silo, x = silos(1, count, dropout=0)[0], [x.array for x in resolutions(count)]
    link = {(step.source, step.target): step.function for step in silo.steps()}
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        h = [x[j] + sum(link[i, j](x[i]).array for i in range(j)) for j in range(count)]
        y = [h[i] + sum(link[j, i](h[j]).array for j in range(i + 1, count)) for i in range(count)]
        for found, expected in zip(silo(*x), y, strict=True):
            np.testing.assert_allclose(found.array, expected, rtol=1e-12, atol=1e-12)
        for found, expected in zip(silo.inverse(*y), x, strict=True):
            np.testing.assert_allclose(found.array, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_gradients_of_any_number_of_resolutions_are_the_plain_networks(count: int) -> None:
    def run(apply: Callable[..., Any]) -> Any:
        net, x = silos(3, count), resolutions(count)
        np.random.seed(7)
        y = apply(net, *x)
        outputs = [one.array.copy() for one in y]
        sum(F.sum(F.sin(one) * (k + 1)) for k, one in enumerate(y)).backward()
        gradients = {n: p.grad for n, p in net.namedparams()}
        return [*outputs, *(one.grad for one in x)], gradients, np.random.random()

    close(run(lambda net, *x: net(*x)), run(plain), np.float64)


def peak(run: Callable[..., Any], depth: int) -> int:
    """Bytes alive at the most in forward and backward passes, gradients apart."""
    net = stack(depth, np.float32, lambda dtype: Layer(dtype, normal=False))
    rows = 20_000
    xs = inputs(np.float32, rows)
    net.cleargrads()
    with traced():
        y1, y2 = run(net, *xs)
        loss = F.sum(y1 * y2)
        del y1, y2
        loss.backward()
        return tracemalloc.get_traced_memory()[1]


def test_the_peak_does_not_grow_with_depth() -> None:
    one = 20_000 * WIDTH * 4
    shallow, deep = (peak(lambda net, *xs: net(*xs), depth) for depth in (2, 16))
    assert deep < shallow + one / 2 + 16 * 4 * 6000  # the states of the random generator, and the gradients
    assert peak(plain, 16) - peak(plain, 2) > 14 * 4 * one
