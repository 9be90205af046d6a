"""One call for every function of `chainer.functions` that puts a node into the graph, on small arrays of NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
from chainer import Variable
from chainer.utils import CooMatrix, WalkerAlias


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


def square(n: int, batch: tuple[int, ...] = ()) -> Any:
    """Positive definite."""
    a = np.random.default_rng(2).standard_normal((*batch, n, n))
    return prepared(Variable((a @ np.swapaxes(a, -1, -2) + n * np.eye(n)).astype(np.float32)))


def statistics(n: int) -> tuple[Any, Any]:
    return np.zeros(n, np.float32), np.ones(n, np.float32)


def images() -> Any:
    return x(2, 4, 8, 8)


ROIS = np.array([[0, 0, 5, 5], [1, 2, 7, 6]], np.float32)
BATCHES = np.array([0, 1], np.int32)


def roi(function: Callable[..., Any], **more: Any) -> Any:
    return function(images(), ROIS, BATCHES, outsize=3, spatial_scale=1.0, **more)


def pooled(n: int, function: Callable[..., Any], **more: Any) -> Any:
    return function(x(2, 3, *(8,) * n), 2, **more)


def convolved(n: int, function: Callable[..., Any]) -> Any:
    return function(x(2, 4, *(6,) * n), x(4, 4, *(3,) * n, seed=1), x(4, seed=2), stride=2, pad=1)


def recurrent(function: Callable[..., Any], gates: int, two_ways: bool, cell: bool) -> Any:
    ways = 2 if two_ways else 1
    ws, bs = [], []
    for layer in range(2):
        for _ in range(ways):
            width = 5 if layer == 0 else 4 * ways
            ws.append([x(4, width if i < gates // 2 else 4, seed=i) for i in range(gates)])
            bs.append([x(4, seed=i) for i in range(gates)])
    states = [x(2 * ways, 4, 4, seed=i) for i in range(2 if cell else 1)]
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
    "argmax_crf1d": lambda: F.argmax_crf1d(x(3, 3), [x(4, 3), x(2, 3, seed=1)]),
    "as_strided": lambda: F.as_strided(x(5, 6), (3, 3), (6, 2)),
    "average_pooling_nd": lambda: pooled(2, F.average_pooling_nd, pad_value=None, pad=1),
    "batch_det": lambda: F.batch_det(square(3, (4,))),
    "batch_inv": lambda: F.batch_inv(square(3, (4,))),
    "batch_matmul": lambda: F.batch_matmul(x(2, 3, 4), x(2, 4, 5)),
    "batch_normalization": lambda: (
        L.BatchNormalization(4)(images()),
        F.batch_normalization(x(5, 6), np.ones(6, "f"), np.zeros(6, "f")),
    ),
    "batch_renormalization": lambda: (
        F.batch_renormalization(x(5, 6), x(6), x(6), 3, 1, 2e-5, *statistics(6), update_statistics=True),
        F.batch_renormalization(x(5, 6), x(6), x(6), 3, 1, 2e-5, *statistics(6)),
    ),
    "bias": lambda: F.bias(x(5, 6), x(6)),
    "bilinear": lambda: F.bilinear(x(5, 3), x(5, 4), x(3, 4, 2), x(3, 2), x(4, 2), x(2)),
    "binary_accuracy": lambda: F.binary_accuracy(x(5), t(5, below=2)),
    "black_out": lambda: F.black_out(x(5, 6), t(5), x(9, 6), t(5, 4, below=9)),
    "broadcast_to": lambda: F.broadcast_to(x(1, 6), (5, 6)),
    "cast": lambda: F.cast(x(5, 6), np.float64),
    "cholesky": lambda: F.cholesky(square(4)),
    "classification_summary": lambda: F.classification_summary(x(5, 3), t(5)),
    "clip": lambda: F.clip(x(5, 6), -0.5, 0.5),
    "concat": lambda: F.concat([x(5, 6), x(5, 2)]),
    "connectionist_temporal_classification": lambda: F.connectionist_temporal_classification(
        [x(2, 4, seed=i) for i in range(6)], t(2, 2), 3
    ),
    "contrastive": lambda: F.contrastive(x(5, 6), x(5, 6, seed=1), t(5, below=2)),
    "convolution_nd": lambda: convolved(2, F.convolution_nd),
    "copy": lambda: F.copy(x(5, 6), -1),
    "crf1d": lambda: F.crf1d(x(3, 3), [x(4, 3), x(2, 3, seed=1)], [t(4), t(2)]),
    "deconvolution_nd": lambda: convolved(2, F.deconvolution_nd),
    "decorrelated_batch_normalization": lambda: F.decorrelated_batch_normalization(
        images(), groups=2, running_mean=np.zeros((2, 2), "f"), running_projection=np.zeros((2, 2, 2), "f")
    ),
    "deformable_convolution_2d_sampler": lambda: F.deformable_convolution_2d_sampler(
        images(), x(2, 18, 8, 8, seed=1), x(3, 4, 3, 3), x(3), pad=1
    ),
    "depth2space": lambda: F.depth2space(images(), 2),
    "depthwise_convolution_2d": lambda: F.depthwise_convolution_2d(images(), x(2, 4, 3, 3), x(8)),
    "det": lambda: F.det(square(4)),
    "diagonal": lambda: F.diagonal(x(5, 6)),
    "dilated_convolution_2d": lambda: F.dilated_convolution_2d(images(), x(3, 4, 3, 3), x(3), dilate=2),
    "discriminative_margin_based_clustering_loss": lambda: F.discriminative_margin_based_clustering_loss(
        x(2, 2, 8, 8), 1 + np.arange(128, dtype=np.int32).reshape(2, 8, 8) % 2, 0.5, 1.5, 2
    ),
    "dstack": lambda: F.dstack([x(5, 6), x(5, 6)]),
    "einsum": lambda: F.einsum("ij,jk->ik", x(5, 6), x(6, 4)),
    "embed_id": lambda: F.embed_id(t(5), x(3, 6)),
    "expand_dims": lambda: F.expand_dims(x(5, 6), 1),
    "f1_score": lambda: F.f1_score(x(5, 3), t(5)),
    "fft": lambda: F.fft((x(5, 6), x(5, 6, seed=1))),
    "fixed_batch_normalization": lambda: F.fixed_batch_normalization(images(), x(4), x(4), x(4), p(4)),
    "fixed_batch_renormalization": lambda: F.fixed_batch_renormalization(images(), x(4), x(4), x(4), p(4)),
    "fixed_decorrelated_batch_normalization": lambda: F.fixed_decorrelated_batch_normalization(
        images(), x(2, 2).array, x(2, 2, 2).array, groups=2
    ),
    "flip": lambda: F.flip(x(5, 6), 1),
    "forget": lambda: F.forget(lambda a: F.tanh(F.relu(a)), x(5, 6)),
    "gaussian_nll": lambda: F.gaussian_nll(x(5, 6), x(5, 6, seed=1), x(5, 6, seed=2)),
    "get_item": lambda: (F.get_item(x(5, 6), (slice(1, 4), [0, 2])), x(5, 6)[2]),
    "group_normalization": lambda: F.group_normalization(images(), 2, x(4), x(4)),
    "gumbel_softmax": lambda: F.gumbel_softmax(F.log_softmax(x(5, 6))),
    "hinge": lambda: F.hinge(x(5, 6), t(5)),
    "hstack": lambda: F.hstack([x(5, 6), x(5, 6)]),
    "huber_loss": lambda: F.huber_loss(x(5, 6), x(5, 6, seed=1), 1),
    "ifft": lambda: F.ifft((x(5, 6), x(5, 6, seed=1))),
    "im2col": lambda: F.im2col(images(), 3),
    "inv": lambda: F.inv(square(4)),
    "layer_normalization": lambda: F.layer_normalization(x(5, 6), x(6), x(6)),
    "linear": lambda: F.linear(x(5, 6), x(4, 6), x(4)),
    "linear_interpolate": lambda: F.linear_interpolate(p(5, 6), x(5, 6), x(5, 6, seed=1)),
    "local_convolution_2d": lambda: F.local_convolution_2d(images(), x(3, 6, 6, 4, 3, 3), x(3, 6, 6)),
    "local_response_normalization": lambda: F.local_response_normalization(images()),
    "lstm": lambda: F.lstm(x(5, 6), x(4, 24)),
    "matmul": lambda: F.matmul(x(2, 5, 6), x(2, 6, 4)),
    "max_pooling_nd": lambda: pooled(2, F.max_pooling_nd, return_indices=True)[0],
    "maxout": lambda: F.maxout(x(5, 6), 3),
    "moveaxis": lambda: F.moveaxis(x(5, 6, 2), 0, 2),
    "n_step_bigru": lambda: recurrent(F.n_step_bigru, 6, True, False),
    "n_step_bilstm": lambda: recurrent(F.n_step_bilstm, 8, True, True),
    "n_step_birnn": lambda: recurrent(F.n_step_birnn, 2, True, False),
    "n_step_gru": lambda: recurrent(F.n_step_gru, 6, False, False),
    "n_step_lstm": lambda: recurrent(F.n_step_lstm, 8, False, True),
    "n_step_rnn": lambda: recurrent(F.n_step_rnn, 2, False, False),
    "negative_sampling": lambda: F.negative_sampling(
        x(5, 6), t(5), x(9, 6), WalkerAlias([1.0] * 9).sample, 4
    ),
    "pad": lambda: F.pad(x(5, 6), 1, "constant"),
    "pad_sequence": lambda: F.pad_sequence([x(3, 2), x(5, 2)]),
    "permutate": lambda: F.permutate(x(5, 6), np.array([2, 0, 4, 1, 3], np.int32)),
    "polygamma": lambda: F.polygamma(t(5, 6), p(5, 6)),
    "precision": lambda: F.precision(x(5, 3), t(5)),
    "prelu": lambda: F.prelu(x(5, 6), x(6)),
    "r2_score": lambda: F.r2_score(x(5, 6), x(5, 6, seed=1)),
    "recall": lambda: F.recall(x(5, 3), t(5)),
    "repeat": lambda: F.repeat(x(5, 6), 2, axis=1),
    "reshape": lambda: F.reshape(x(5, 6), (3, 10)),
    "resize_images": lambda: F.resize_images(images(), (5, 11)),
    "roi_average_align_2d": lambda: roi(F.roi_average_align_2d, sampling_ratio=2),
    "roi_average_pooling_2d": lambda: roi(F.roi_average_pooling_2d),
    "roi_max_align_2d": lambda: roi(F.roi_max_align_2d, sampling_ratio=2),
    "roi_max_pooling_2d": lambda: roi(F.roi_max_pooling_2d),
    "roi_pooling_2d": lambda: F.roi_pooling_2d(images(), np.insert(ROIS, 0, BATCHES, axis=1), 3, 3, 1.0),
    "rollaxis": lambda: F.rollaxis(x(5, 6, 2), 2),
    "scale": lambda: F.scale(x(5, 6), x(6)),
    "scatter_add": lambda: F.scatter_add(x(5, 6), [0, 2], x(2, 6)),
    "select_item": lambda: F.select_item(x(5, 6), t(5)),
    "shift": lambda: F.shift(x(2, 9, 8, 8)),
    "sigmoid_cross_entropy": lambda: F.sigmoid_cross_entropy(x(5, 6), t(5, 6, below=2)),
    "simplified_dropconnect": lambda: F.simplified_dropconnect(x(5, 6), x(4, 6), x(4)),
    "slstm": lambda: F.slstm(x(5, 3), x(5, 3, seed=1), x(5, 12), x(5, 12, seed=1)),
    "softmax_cross_entropy": lambda: (
        F.softmax_cross_entropy(x(5, 3), t(5)),
        F.softmax_cross_entropy(x(5, 3), t(5), class_weight=np.ones(3, "f"), enable_double_backprop=True),
    ),
    "space2depth": lambda: F.space2depth(images(), 2),
    "sparse_matmul": lambda: F.sparse_matmul(
        CooMatrix(x(4).array, np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32), (5, 6)), x(6, 3)
    ),
    "spatial_pyramid_pooling_2d": lambda: F.spatial_pyramid_pooling_2d(images(), 3, pooling="max"),
    "spatial_transformer_grid": lambda: F.spatial_transformer_grid(x(2, 2, 3), (5, 5)),
    "spatial_transformer_sampler": lambda: F.spatial_transformer_sampler(images(), p(2, 2, 5, 5)),
    "split_axis": lambda: F.split_axis(x(5, 6), 3, 1),
    "stack": lambda: F.stack([x(5, 6), x(5, 6)]),
    "sum_to": lambda: F.sum_to(x(5, 6), (1, 6)),
    "swapaxes": lambda: F.swapaxes(x(5, 6, 2), 0, 2),
    "swish": lambda: F.swish(x(5, 6), x(6)),
    "tensordot": lambda: F.tensordot(x(5, 6, 2), x(6, 2, 3)),
    "tile": lambda: F.tile(x(5, 6), (2, 1)),
    "transpose_sequence": lambda: F.transpose_sequence([x(4, 2), x(3, 2), x(1, 2)]),
    "tree_lstm": lambda: F.tree_lstm(x(5, 3), x(5, 3, seed=1), x(5, 15)),
    "triplet": lambda: F.triplet(x(5, 6), x(5, 6, seed=1), x(5, 6, seed=2)),
    "unpooling_nd": lambda: pooled(2, F.unpooling_nd),
    "upsampling_2d": lambda: F.upsampling_2d(
        x(2, 3, 4, 4), pooled(2, F.max_pooling_2d, return_indices=True)[1], 2, cover_all=False
    ),
    "vstack": lambda: F.vstack([x(5, 6), x(5, 6)]),
    "where": lambda: F.where(t(5, 6, below=2).astype(bool), x(5, 6), x(5, 6, seed=1)),
    "zeta": lambda: F.zeta(t(5, 6) + np.float32(2), p(5, 6)),
}
