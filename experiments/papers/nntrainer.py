"""NNTrainer (Moon et al. 2022, arXiv 2206.04688): training steps planned from lists of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from stowplan.packing import lower_bound, pack
from stowplan.papers.nntrainer.layers import Layer, Lifespan, Merge, conv2d, linear, lstm, step_graph
from stowplan.papers.olla.joint import blocks_of

from .table import Table

FLOAT = 4
BOTH = Lifespan.FORWARD | Lifespan.DERIVATIVE
VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
"""Channels of the convolutions; 0: a pool that halves the sides."""
BATCH = 64
IMAGE = 3 * 224 * 224


def tables(quick: bool) -> Iterator[Table]:
    """Return table 4, and the planners on its components and on VGG16."""
    rows, planned = [], []
    for name, (layers, printed) in COMPONENTS.items():
        graph = step_graph(layers)
        blocks = blocks_of(graph, np.arange(len(graph))).problem
        bound, resident = lower_bound(blocks), graph.resident_bytes
        if printed is not None:
            rows.append([name, f"{(bound + resident) / 1024:,.0f}", f"{printed:,}"])
        shares = [pack(blocks, solver).peak / bound for solver in PLANNERS]
        planned.append([name, f"{(bound + resident) / 2**20:,.1f}", *(f"{share:.3f}" for share in shares)])
    yield Table("Components (table 4), KiB", ("layers, batch of 64", "needed", "the paper"), rows, TABLE_4)
    columns = ("layers", "needed MiB", *PLANNERS)
    yield Table("Arenas over the lower bound, by planner", columns, planned, PLANNED)


PLANNERS = ("nntrainer_v1", "nntrainer_v3", "best_fit", "auto")
TABLE_4 = (
    "With input, weights, label and a loss. The three fully connected layers of the table are left out, as their "
    "hidden widths are not given."
)
PLANNED = (
    "*Needed* has parameters and gradients. VGG16 is for images of 32 x 32; the paper has 181 MiB for it without "
    "swap, of which 11 are the process's own."
)


def vgg16(side: int = 32, widths: Sequence[int] = (256, 256, 100)) -> list[Layer]:
    """List VGG16's layers, each ReLU in place, for the paper's images of 32 x 32 and its 100 classes."""
    shape = (BATCH, 3, side, side)
    layers = [Layer("image", FLOAT * int(np.prod(shape)), inputs=())]

    def relu() -> Layer:
        size = FLOAT * int(np.prod(shape))
        return Layer(
            f"relu {len(layers)}",
            size,
            needs_input=Lifespan.FORWARD,
            needs_output=BOTH,
            merge=Merge.IN_PLACE,
        )

    for channels in VGG16:
        if channels:
            layers.append(conv2d(f"convolution {len(layers)}", shape, channels, 3, padding=1))
            shape = (BATCH, channels, *shape[2:])
            layers.append(relu())
        else:
            shape = (*shape[:2], shape[2] // 2, shape[3] // 2)
            size = FLOAT * int(np.prod(shape))
            indices = ((size, BOTH),)
            layers.append(
                Layer(f"pool {len(layers)}", size, needs_input=Lifespan.FORWARD, temporaries=indices)
            )
    flat = int(np.prod(shape[1:]))
    layers.append(Layer("flat", FLOAT * BATCH * flat, needs_input=Lifespan.FORWARD, merge=Merge.VIEW))
    for k, width in enumerate(widths):
        layers.append(linear(f"linear {k}", (BATCH, flat), width))
        flat, shape = width, (BATCH, width, 1, 1)
        if k < len(widths) - 1:
            layers.append(relu())
    return [*layers, _loss(flat)]


def _input(size: int) -> Layer:
    return Layer("input", FLOAT * BATCH * size, inputs=())


def _loss(size: int) -> Layer:
    return Layer("loss", FLOAT * BATCH * size, needs_input=BOTH)


COMPONENTS: dict[str, tuple[list[Layer], int | None]] = {
    "linear, 150,528 to 300": (
        [_input(IMAGE), linear("linear", (BATCH, IMAGE), 300), _loss(300)],
        390_590,
    ),
    "convolution, 3 of 3 x 3, stride 2": (
        [
            _input(IMAGE),
            conv2d("convolution", (BATCH, 3, 224, 224), 3, 3, stride=2, padding=1),
            _loss(3 * 112 * 112),
        ],
        65_856,
    ),
    "LSTM, 150,528 to 10": (
        [_input(IMAGE), lstm("lstm", BATCH, 1, IMAGE, 10), _loss(10)],
        84_731,
    ),
    "VGG16": (vgg16(), None),
}
