"""NNTrainer (Moon et al. 2022, arXiv 2206.04688): training steps planned from lists of layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from stowplan.packing import lower_bound, pack
from stowplan.papers.nntrainer.layers import Layer, Lifespan, Merge, step_graph
from stowplan.papers.nntrainer.shapes import conv2d, linear, lstm
from stowplan.papers.nntrainer.swapping import latency, swapped
from stowplan.papers.olla.joint import blocks_of

from .sequence_networks import BOTH, FLOAT, FORWARD, POINTWISE, loss, tacotron2_decoder, transformer
from .table import Table, beside
from .vgg_training import MLP, can_hold, measure

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
    rows = [[name, *_swapped(name, *network)] for name, network in NETWORKS.items()]
    yield Table("Weights and activations swapped (figures 13 and 14)", SWAPPED_COLUMNS, rows, SWAPPED)
    yield _trained(*((6, 4, 1) if quick else (10, 1, 2)))
    yield _perceptron(*((8, 4) if quick else (20, 1)))


def _trained(steps: int, part: int, rounds: int) -> Table:
    """Train VGG16, or a part of it, in less and less memory."""
    how = {"steps": steps, "part": part}
    peak = measure("pool", **how)["live"]
    asked = {("plain", 0): TRAINED["plain"]}
    for way, share in (("recomputed", 0.4), ("swapped", 0.4), ("swapped", 0.25), ("swapped", 0.15)):
        budget = int(share * peak)
        least = measure(way, budget, **how).get("least", 0)
        asked[way, max(budget, least)] = f"{TRAINED[way]}: {'the least' if least else f'{share:.0%}'}"
    own = OWN if part == 1 and can_hold() else 0
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {cell: [] for cell in asked}
    for _ in range(rounds):
        for (way, budget), found in runs.items():
            found.append(measure(way, budget, limit=budget + own if own and budget else 0, **how))
    plain = runs["plain", 0]
    rows = []
    for (way, budget), found in runs.items():
        held = _mib(budget + own) if own and budget else ""
        rows.append(
            [asked[way, budget], f"{budget / peak:.3f}" if budget else "", *_cells(found, plain, peak, held)]
        )
    if own:
        limit = int(0.4 * peak) + own
        held_plain = [measure("plain", limit=limit, **how)]
        rows.append([f"{TRAINED['plain']}, held", "", *_cells(held_plain, plain, peak, _mib(limit))])
    return Table(f"VGG16 trained: a batch of {64 // part}, {steps} steps", TRAINING, rows, TRAINING_NOTE)


def _perceptron(steps: int, part: int) -> Table:
    """Train a perceptron, plain and with its parameters out of memory, and count the process's own memory."""
    least = measure("swapped", 1, steps, part, "mlp")["least"]
    runs = {TRAINED["plain"]: measure("plain", 0, steps, part, "mlp")}
    runs[f"{TRAINED['swapped']}: the least"] = measure("swapped", least, steps, part, "mlp")
    plain = runs[TRAINED["plain"]]
    rows = []
    for name, run in runs.items():
        first, later = (run[key] - run["start"] for key in ("resident", "last"))
        cells = [_mib(run["live"]) if run["live"] else "", _mib(first), _mib(later)]
        times = f"{run['cpu'] / plain['cpu']:.2f}"
        rows.append([name, *cells, times, "yes" if run["bits"] == plain["bits"] else "NO"])
    width, layers = MLP
    title = f"A perceptron of {layers} x {width // part}² trained: a batch of {64 // part}, {steps} steps"
    return Table(title, PERCEPTRON, rows, PERCEPTRON_NOTE)


def _cells(found: list[dict[str, Any]], plain: list[dict[str, Any]], peak: int, held: str) -> list[str]:
    if any("killed" in run for run in found):
        return ["", "killed", held, "", "", "", ""]
    live, resident = (max(run[key] for run in found) for key in ("live", "resident"))
    times = [
        f"{np.median([a[key] / b[key] for a, b in zip(found, plain, strict=False)]):.2f}"
        for key in ("wall", "cpu", "later")
    ]
    same = {run["bits"] for run in (*found, *plain)} == {plain[0]["bits"]}
    return [_mib(live or peak), _mib(resident), held, *times, "yes" if same else "NO"]


def _swapped(name: str, layers: list[Layer], lookahead: int) -> list[str]:
    graph = step_graph(layers, rate=OPERATIONS)
    plain = pack(blocks_of(graph, np.arange(len(graph))).problem).peak + graph.resident_bytes
    ways = [swapped(graph, orders) for orders in (lookahead, 0)]
    arenas = [pack(way.problem).peak for way in ways]
    seconds = [latency(graph, way.transfers, DISK) / graph.seconds.sum() for way in ways]
    memory, times = PUBLISHED.get(name, ((None,) * 3, (None,) * 2))
    return [
        *(beside(found / 2**20, printed, 1) for found, printed in zip((plain, *arenas), memory, strict=True)),
        *(f"{arena / plain:.1%}" for arena in arenas),
        *(beside(found, printed, 2) for found, printed in zip(seconds, times, strict=True)),
        str(lookahead),
    ]


def _mib(count: int) -> str:
    return f"{count / 2**20:,.1f}"


PLANNERS = ("nntrainer_v1", "nntrainer_v3", "best_fit", "auto")
TABLE_4 = (
    "With input, weights, label and a loss. The three fully connected layers of the table are left out, as their "
    "hidden widths are not given."
)
PLANNED = (
    "*Needed* has parameters and gradients. VGG16 is for images of 32 x 32; the paper has 181 MiB for it without "
    "swap, of which 11 are the process's own."
)


OPERATIONS, DISK = 50e9, 1e9
"""A second, and bytes a second: times over that without swap depend on their ratio alone."""
PROCESS = 11.0
"""MiB that the paper's process takes beside the network's tensors."""
PUBLISHED = {"VGG16, 32 x 32": ((181 - PROCESS, 71 - PROCESS, 51 - PROCESS), (1.20, 1.35))}
SWAPPED_COLUMNS = (
    *("layers", "no swap, MiB", "ahead", "on demand", "ahead, of no swap", "on demand, of no swap"),
    *("time ahead", "time on demand", "look-ahead"),
)
SWAPPED = (
    "*Ahead*: a transfer has the time of so many execution orders (*look-ahead*) before each use and after it; with "
    "24, those of a frame, Tacotron 2 keeps what the next frame uses. *On demand*: the step waits for all transfers. "
    "*Time*: over that without swap, predicted for a device that does 50 operations while it moves a byte (products "
    "and convolutions counted). In brackets the paper's figures for VGG16, less the 11 MiB of its process, measured on "
    "its device. Its Transformer, of a batch of 64, takes 4.4 GiB, and 0.22 ahead; with our layers 64 x 108 words "
    "take so much. Tacotron 2 has 64 x 64 symbols and 32 frames. What the paper's reduced scheme keeps (59 MiB), and "
    "the hidden width of its frozen layer (20.9 MiB less), are not given."
)


OWN = 200 << 20
"""Bytes for a process beside what a step has alive: the interpreter, its libraries, and what the heap keeps."""
TRAINED = {"plain": "Chainer on NumPy", "recomputed": "recomputed", "swapped": "parameters and state swapped"}
TRAINING = (
    *("training: budget", "budget / Chainer's live peak"),
    *("live peak, MiB", "resident set, MiB", "held to, MiB"),
    *("wall time", "CPU time", "CPU of a later step", "equal bits"),
)
TRAINING_NOTE = (
    "SGD with momentum, on one thread, in a process of its own for each. *Budget*: for all that a step has alive, as "
    "a share of what Chainer's has; 25% and 15% cannot be kept, and give the least that can. *Recomputed*: early "
    "release, recomputation, activations swapped. *Live peak*: the program's, its first steps and the recorded one "
    "included. *Resident set*: the process's largest. *Held to*: by a control group for memory, without the kernel's "
    "swap, where one can be made. Times are those of the whole training, and of a step after the first five, over "
    "Chainer's in the same round.\n\n"
    "The least is reached where the second convolution runs backward: its unfolded images alone take 144 MiB, and "
    "BLAS sums over all of them: with fewer at a time the bits may be others. NNTrainer has 39% of the memory at 1.20 "
    "times the time."
)


PERCEPTRON = (
    *("training", "live peak, MiB", "resident, MiB", "after the last step, MiB"),
    *("CPU time", "equal bits"),
)
PERCEPTRON_NOTE = (
    "*Resident*: the most that the process has beside what it had before the network was made, its first steps "
    "included; after them the heap gives back what is no longer needed. The parameters, their gradients and "
    "the momentum are three times 48 MiB. The paper has a Transformer in a twentieth, by its plan."
)


class _Net:
    """Layers of images of 32 x 32, listed one after the other; each ReLU in place."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = (BATCH, 3, 32, 32)
        self.layers = [Layer("image", FLOAT * int(np.prod(self.shape)), inputs=())]

    @property
    def last(self) -> str:
        """The name of the last layer."""
        return self.layers[-1].name

    def conv(self, channels: int, kernel: int, **options: Any) -> None:
        """Add a convolution."""
        layer = conv2d(f"convolution {len(self.layers)}", self.shape, channels, kernel, **options)
        side = math.isqrt(layer.output // (FLOAT * BATCH * channels))
        self.layers.append(layer)
        self.shape = (BATCH, channels, side, side)

    def relu(self) -> None:
        """Add a ReLU."""
        self._add("relu", **POINTWISE)

    def norm(self) -> None:
        """Add batch normalization, which reads its input backward."""
        self._add("norm", weights=(FLOAT * self.shape[1],) * 2, needs_input=Lifespan.ITERATION)

    def pool(self, kernel: int, stride: int) -> None:
        """Add a pool, which keeps where its maxima were."""
        side = (self.shape[2] - kernel) // stride + 1
        self.shape = (*self.shape[:2], side, side)
        self._add("pool", temporaries=((FLOAT * int(np.prod(self.shape)), BOTH),))

    def residual(self, channels: int, stride: int) -> None:
        """Add a block of two convolutions, and its shortcut."""
        before, shape = self.last, self.shape
        self.conv(channels, 3, stride=stride, padding=1)
        self.norm()
        self.relu()
        self.conv(channels, 3, padding=1)
        self.norm()
        there = self.last
        if stride > 1:
            self.shape = shape
            self.conv(channels, 1, stride=stride, inputs=(before,))
            self.norm()
            before = self.last
        self._add("sum", inputs=(there, before))
        self.relu()

    def classify(self, *widths: int) -> list[Layer]:
        """Add fully connected layers with ReLUs between, and a loss; return all."""
        flat = int(np.prod(self.shape[1:]))
        self._add("flat", merge=Merge.VIEW)
        for k, width in enumerate(widths):
            self.layers.append(linear(f"linear {k}", (BATCH, flat), width))
            flat, self.shape = width, (BATCH, width, 1, 1)
            if k < len(widths) - 1:
                self.relu()
        return [*self.layers, loss("loss", FLOAT * BATCH * flat)]

    def _add(self, kind: str, **options: Any) -> None:
        options = {"needs_input": FORWARD, **options}
        size = FLOAT * int(np.prod(self.shape))
        self.layers.append(Layer(f"{kind} {len(self.layers)}", size, **options))


def vgg16() -> list[Layer]:
    """List VGG16's layers, for the paper's images of 32 x 32 and its 100 classes."""
    net = _Net()
    for channels in VGG16:
        if channels:
            net.conv(channels, 3, padding=1)
            net.relu()
        else:
            net.pool(2, 2)
    return net.classify(256, 256, 100)


def alexnet() -> list[Layer]:
    """List AlexNet's layers for images of 32 x 32: the paper's largest weight is of 4096 x 4096."""
    net = _Net()
    for channels in (64, 192, 384, 256, 256):
        net.conv(channels, 3, stride=2 if channels == 64 else 1, padding=1)
        net.relu()
        if channels < 256:
            net.pool(2, 2)
    net.pool(2, 2)
    return net.classify(4096, 4096, 100)


def resnet18() -> list[Layer]:
    """List ResNet-18's layers, for images of 32 x 32 and 100 classes."""
    net = _Net()
    net.conv(64, 3, padding=1)
    net.norm()
    net.relu()
    for channels in (64, 128, 256, 512):
        net.residual(channels, 1 if channels == 64 else 2)
        net.residual(channels, 1)
    net.pool(net.shape[2], 1)
    return net.classify(100)


def _alone(layer: Layer, made: int) -> list[Layer]:
    """List a layer that reads images, and a loss of what it makes of each."""
    return [Layer("input", FLOAT * BATCH * IMAGE, inputs=()), layer, loss("loss", FLOAT * BATCH * made)]


_CONVOLUTION = conv2d("convolution", (BATCH, 3, 224, 224), 3, 3, stride=2, padding=1)
COMPONENTS: dict[str, tuple[list[Layer], int | None]] = {
    "linear, 150,528 to 300": (_alone(linear("linear", (BATCH, IMAGE), 300), 300), 390_590),
    "convolution, 3 of 3 x 3, stride 2": (_alone(_CONVOLUTION, 3 * 112 * 112), 65_856),
    "LSTM, 150,528 to 10": (_alone(lstm("lstm", BATCH, 1, IMAGE, 10), 10), 84_731),
    "VGG16": (vgg16(), None),
}
NETWORKS: dict[str, tuple[list[Layer], int]] = {
    "VGG16, 32 x 32": (vgg16(), 1),
    "AlexNet, 32 x 32": (alexnet(), 1),
    "ResNet-18, 32 x 32": (resnet18(), 1),
    "Transformer": (transformer(), 1),
    "Tacotron 2's decoder": (tacotron2_decoder(), 24),
}
"""Layers, and the look-ahead."""
