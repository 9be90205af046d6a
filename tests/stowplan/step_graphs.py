"""Step graphs for the tests of commands."""

from __future__ import annotations

from stowplan.scheduling import Phase, StepGraph

from ..scheduling.nets import Builder

KIB = 1024
LAYERS = 10


def layers(batch: int = 4, *, seconds: bool = True) -> StepGraph:
    """A chain of layers: activations that grow with the batch, parameters of 3 KiB each with an update of its own.

    Layer k writes a value of batch KiB, and drops a mask of dropout, a quarter of it, which packs to an eighth.
    """
    b, grows, took, space = Builder(), batch * KIB, batch * seconds, batch * 64
    y = [b.value(grows, resident=True)]
    weight, masks = [b.value(3 * KIB, resident=True) for _ in range(LAYERS)], []
    for k in range(LAYERS):
        masks += b.run(f"draw{k}", [], [grows // 4], Phase.FORWARD, 0.001 * took, space, repeatable=False)
        reads = [y[-1], weight[k], masks[-1]]
        y += b.run(f"layer{k}", reads, [grows], Phase.FORWARD, 0.01 * (k + 1) * took, space)
    (gradient,) = b.run("loss'", [y[-1]], [grows], Phase.BACKWARD, 0.001 * took, space)
    for k in reversed(range(LAYERS)):
        reads = [y[k], y[k + 1], masks[k], weight[k], gradient]
        gradient, own = b.run(f"layer{k}'", reads, [grows, 3 * KIB], Phase.BACKWARD, 0.02 * took, space)
        b.run(f"update{k}", [weight[k], own], [], Phase.UPDATE, 0.001 * took, space)
    return b.graph(dict.fromkeys(masks, grows // 32))
