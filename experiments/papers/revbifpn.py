"""RevBiFPN (Chiley et al., MLSys 2023, arXiv 2206.14098): reversible fusions, by depth and width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stowplan import NumpyRecorder
from stowplan.compat import enable_chainer

from .table import Table

BATCH, SIDE = 4, 64
NETWORKS = {
    "2 resolutions": (16, 32),
    "2 resolutions, twice as wide": (32, 64),
    "3 resolutions": (16, 32, 64),
    "4 resolutions": (16, 32, 64, 128),
}


def tables(quick: bool) -> Iterator[Table]:
    """Return the live peaks beside those of the network that keeps everything, and how far gradients are off."""
    enable_chainer()
    rows = []
    depths = (1, 2) if quick else (2, 8, 24)
    for name, channels in [*NETWORKS.items()][:: 2 if quick else 1]:
        for depth in depths:
            peaks, single = _compared(depth, channels, np.float32)
            _, double = _compared(depth, channels, np.float64)
            whole, kept, gradients = (count / 2**20 for count in peaks)
            cells = f"{kept:.2f}", f"{whole:.2f}", f"{whole / kept:.1f}x", f"{gradients:.2f}"
            rows.append([f"{name}, depth {depth}", *cells, *(f"{off:.0e}" for off in (*single, *double))])
    columns = (
        *("network", "reversible, MiB", "plain, MiB", "ratio", "of it gradients, MiB"),
        *(f"{dtype}: {what}" for dtype in ("float32", "float64") for what in ("worst tensor", "whole")),
    )
    yield Table("Live peak of a step, and gradients off by (paper: 19.8x)", columns, rows, NOTE)


NOTE = (
    "Images of 64 x 64, batch 4, without parameters, with their gradients, which both networks have. The ratio grows "
    "with depth, as the plain network's peak does; the paper's 19.8 is of RevBiFPN-S6 beside EfficientNet-B7. *Worst "
    "tensor*: the largest difference of a parameter's gradient over its largest element, at most. *Whole*: the norm "
    "of the difference of all gradients over their norm."
)


def _compared(
    depth: int, channels: Sequence[int], dtype: Any
) -> tuple[tuple[int, int, int], tuple[float, float]]:
    """Return the plain and the reversible network's peak, the gradients' bytes, and how far off these are."""
    (whole, expected), (kept, found) = (_step(depth, channels, dtype, way) for way in (False, True))
    worst = max(
        float(np.abs(found[n] - e).max() / max(float(np.abs(e).max()), 1e-30)) for n, e in expected.items()
    )
    off = sum(float(np.square(found[n] - e).sum()) for n, e in expected.items())
    norm = sum(float(np.square(e).sum()) for e in expected.values())
    return (whole, kept, sum(e.nbytes for e in expected.values())), (worst, (off / norm) ** 0.5)


def _step(depth: int, channels: Sequence[int], dtype: Any, reversible: bool) -> tuple[int, dict[str, Any]]:
    import chainer

    from ..models.revbifpn import RevBiFPN

    np.random.seed(0)  # noqa: NPY002 (Chainer's initializers draw from it)
    images = np.random.default_rng(0).standard_normal((BATCH, 3, SIDE, SIDE)).astype(dtype)
    with chainer.using_config("dtype", np.dtype(dtype)):
        net = RevBiFPN(depth, channels, reversible=reversible)
        recorder = NumpyRecorder()
        with recorder, recorder.step():
            net.cleargrads()
            loss = net(images, np.arange(BATCH, dtype=np.int32))
            loss.backward()
            del loss
        return recorder.whole().planned_peak, {name: p.grad.copy() for name, p in net.namedparams()}
