"""Calls of `chainer.functions` on small arrays of NumPy's: of every structure that nodes have, not of each function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
from chainer import Variable
from chainer.utils import WalkerAlias


def prepared(value: Any) -> Any:
    """Return a variable before it is given to a function: tests put their own in the place of this one."""
    return value


def x(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return prepared(Variable(np.random.default_rng(seed).standard_normal(shape).astype(dtype)))


def p(*shape: int, seed: int = 0) -> Any:
    """Between 0.1 and 0.9."""
    return prepared(Variable(np.random.default_rng(seed).uniform(0.1, 0.9, shape).astype(np.float32)))


def t(*shape: int, below: int = 3) -> Any:
    return np.random.default_rng(5).integers(0, below, shape, dtype=np.int32)


def statistics(n: int) -> tuple[Any, Any]:
    return np.zeros(n, np.float32), np.ones(n, np.float32)


def images() -> Any:
    return x(2, 4, 8, 8)


ROIS = np.array([[0, 0, 5, 5], [1, 2, 7, 6]], np.float32)
BATCHES = np.array([0, 1], np.int32)


def pooled(n: int, function: Callable[..., Any], **more: Any) -> Any:
    return function(x(2, 3, *(8,) * n), 2, **more)


def convolved(n: int, function: Callable[..., Any]) -> Any:
    return function(x(2, 4, *(6,) * n), x(4, 4, *(3,) * n, seed=1), x(4, seed=2), stride=2, pad=1)


def recurrent(function: Callable[..., Any], gates: int, cell: bool) -> Any:
    """Two layers, both ways."""
    ws, bs = [], []
    for width in (5, 5, 8, 8):
        ws.append([x(4, width if i < gates // 2 else 4, seed=i) for i in range(gates)])
        bs.append([x(4, seed=i) for i in range(gates)])
    states = [x(4, 4, 4, seed=i) for i in range(2 if cell else 1)]
    return function(2, 0.5, *states, ws, bs, [x(n, 5, seed=n) for n in (4, 3, 1)])


def words(text: str) -> list[str]:
    return text.split()


def pair(function: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: function(x(5, 6), x(5, 6, seed=1))


def one(function: Callable[..., Any], make: Callable[..., Any] = x) -> Callable[[], Any]:
    return lambda: function(make(5, 6))


CALLS: dict[str, Callable[[], Any]] = {
    **{
        name: one(getattr(F, name))
        for name in words(
            "absolute arctan argmax argmin average batch_l2_norm_squared clipped_relu cos cosh crelu cumprod "
            "cumsum elu erf erfc erfcx exp expm1 flatten fliplr flipud hard_sigmoid identity leaky_relu "
            "log_ndtr log_softmax logsumexp max mean min ndtr normalize prod relu relu6 rrelu selu sigmoid sin "
            "sinh softmax softplus sqrt square squeeze sum tan tanh transpose dropout separate decov"
        )
    },
    **{
        name: one(getattr(F, name), p)
        for name in words(
            "arccos arcsin arctanh digamma erfcinv erfinv lgamma log log10 log1p log2 ndtri rsqrt sqrt"
        )
    },
    **{
        name: pair(getattr(F, name))
        for name in words(
            "absolute_error add arctan2 bernoulli_nll broadcast fmod gaussian gaussian_kl_divergence maximum "
            "mean_absolute_error mean_squared_error minimum squared_difference squared_error zoneout cross_covariance"
        )
    },
    **{
        f"{name}_{n}d": lambda how=how, n=n, name=name: how(n, getattr(F, f"{name}_{n}d"))
        for name, how in (
            *(("convolution", convolved), ("deconvolution", convolved)),
            *(("average_pooling", pooled), ("max_pooling", pooled), ("unpooling", pooled)),
        )
        for n in (1, 2, 3)
    },
    "accuracy": lambda: F.accuracy(x(5, 3), t(5)),
    "as_strided": lambda: F.as_strided(x(5, 6), (3, 3), (6, 2)),
    "batch_normalization": lambda: (
        L.BatchNormalization(4)(images()),
        F.batch_normalization(x(5, 6), np.ones(6, "f"), np.zeros(6, "f")),
    ),
    "batch_renormalization": lambda: (
        F.batch_renormalization(x(5, 6), x(6), x(6), 3, 1, 2e-5, *statistics(6), update_statistics=True),
        F.batch_renormalization(x(5, 6), x(6), x(6), 3, 1, 2e-5, *statistics(6)),
    ),
    "bias": lambda: F.bias(x(5, 6), x(6)),
    "binary_accuracy": lambda: F.binary_accuracy(x(5), t(5, below=2)),
    "broadcast_to": lambda: F.broadcast_to(x(1, 6), (5, 6)),
    "concat": lambda: F.concat([x(5, 6), x(5, 2)]),
    "connectionist_temporal_classification": lambda: F.connectionist_temporal_classification(
        [x(2, 4, seed=i) for i in range(6)], t(2, 2), 3
    ),
    "copy": lambda: F.copy(x(5, 6), -1),
    "crf1d": lambda: F.crf1d(x(3, 3), [x(4, 3), x(2, 3, seed=1)], [t(4), t(2)]),
    "decorrelated_batch_normalization": lambda: F.decorrelated_batch_normalization(
        images(), groups=2, running_mean=np.zeros((2, 2), "f"), running_projection=np.zeros((2, 2, 2), "f")
    ),
    "diagonal": lambda: F.diagonal(x(5, 6)),
    "embed_id": lambda: F.embed_id(t(5), x(3, 6)),
    "fixed_batch_normalization": lambda: F.fixed_batch_normalization(images(), x(4), x(4), x(4), p(4)),
    "forget": lambda: F.forget(lambda a: F.tanh(F.relu(a)), x(5, 6)),
    "get_item": lambda: (F.get_item(x(5, 6), (slice(1, 4), [0, 2])), x(5, 6)[2]),
    "group_normalization": lambda: F.group_normalization(images(), 2, x(4), x(4)),
    "gumbel_softmax": lambda: F.gumbel_softmax(F.log_softmax(x(5, 6))),
    "layer_normalization": lambda: F.layer_normalization(x(5, 6), x(6), x(6)),
    "linear": lambda: F.linear(x(5, 6), x(4, 6), x(4)),
    "local_response_normalization": lambda: F.local_response_normalization(images()),
    "lstm": lambda: F.lstm(x(5, 6), x(4, 24)),
    "matmul": lambda: F.matmul(x(2, 5, 6), x(2, 6, 4)),
    "n_step_bigru": lambda: recurrent(F.n_step_bigru, 6, cell=False),
    "n_step_bilstm": lambda: recurrent(F.n_step_bilstm, 8, cell=True),
    "negative_sampling": lambda: F.negative_sampling(
        x(5, 6), t(5), x(9, 6), WalkerAlias([1.0] * 9).sample, 4
    ),
    "reshape": lambda: F.reshape(x(5, 6), (3, 10)),
    "roi_max_pooling_2d": lambda: F.roi_max_pooling_2d(images(), ROIS, BATCHES, 3, 1.0),
    "roi_pooling_2d": lambda: F.roi_pooling_2d(images(), np.insert(ROIS, 0, BATCHES, axis=1), 3, 3, 1.0),
    "sigmoid_cross_entropy": lambda: F.sigmoid_cross_entropy(x(5, 6), t(5, 6, below=2)),
    "simplified_dropconnect": lambda: F.simplified_dropconnect(x(5, 6), x(4, 6), x(4)),
    "softmax_cross_entropy": lambda: (
        F.softmax_cross_entropy(x(5, 3), t(5)),
        F.softmax_cross_entropy(x(5, 3), t(5), class_weight=np.ones(3, "f"), enable_double_backprop=True),
    ),
    "split_axis": lambda: F.split_axis(x(5, 6), 3, 1),
    "swish": lambda: F.swish(x(5, 6), x(6)),
    "transpose_sequence": lambda: F.transpose_sequence([x(4, 2), x(3, 2), x(1, 2)]),
    "tree_lstm": lambda: F.tree_lstm(x(5, 3), x(5, 3, seed=1), x(5, 15)),
    "vstack": lambda: F.vstack([x(5, 6), x(5, 6)]),
}
