"""Step graphs for the tests of commands."""

from __future__ import annotations

from stowplan.scheduling import Phase, StepGraph

KIB = 1024
LAYERS = 10


def layers(batch: int = 4, *, seconds: bool = True, per_item: int = KIB) -> StepGraph:
    """A chain of layers: activations that grow with the batch, parameters of 3 KiB each with an update of its own.

    Layer k writes y k, of batch KiB, and drops a mask of dropout, a quarter of it, which packs to an eighth.
    """
    size, resident, packed, name = [], [], [], []

    def value(label: str, count: int, keeps: bool = False, small: int | None = None) -> int:
        size.append(count)
        resident.append(keeps)
        packed.append(count if small is None else small)
        name.append(label)
        return len(size) - 1

    grows = batch * per_item
    y = [value("x", grows, keeps=True)]
    weight = [value(f"W{k}", 3 * KIB, keeps=True) for k in range(LAYERS)]
    reads, writes, phase, label, took = [], [], [], [], []

    def operator(what: str, when: Phase, read: list[int], written: list[int], time: float) -> None:
        reads.append(read)
        writes.append(written)
        phase.append(when)
        label.append(what)
        took.append(time * batch if seconds else 0.0)

    masks = []
    for k in range(LAYERS):
        masks.append(value(f"mask{k}", grows // 4, small=grows // 32))
        operator(f"draw{k}", Phase.FORWARD, [], [masks[-1]], 0.001)
        y.append(value(f"y{k}", grows))
        operator(f"layer{k}", Phase.FORWARD, [y[-2], weight[k], masks[-1]], [y[-1]], 0.01 * (k + 1))
    gradient = value("gy", grows)
    operator("loss'", Phase.BACKWARD, [y[-1]], [gradient], 0.001)
    for k in reversed(range(LAYERS)):
        before, gradient = gradient, value(f"g{k}", grows)
        gw = value(f"gW{k}", 3 * KIB)
        operator(
            f"layer{k}'", Phase.BACKWARD, [y[k], y[k + 1], masks[k], weight[k], before], [gradient, gw], 0.02
        )
        operator(f"update{k}", Phase.UPDATE, [weight[k], gw], [], 0.001)
    return StepGraph(
        reads,
        writes,
        size,
        phase=phase,
        seconds=took,
        workspace=[batch * 64] * len(reads),
        repeatable=[
            when == Phase.FORWARD and not what.startswith("draw")
            for what, when in zip(label, phase, strict=True)
        ],
        resident=resident,
        packed=packed,
        label=label,
        name=name,
    )
