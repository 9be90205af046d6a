"""Ways in which users' programs train in Chainer's Trainer, each as small as it can be. Needs Chainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
from chainer import function_hooks, link_hooks, optimizer_hooks, optimizers
from chainer.iterators import MultiprocessIterator, SerialIterator
from chainer.training import extensions

BATCH = 16
LAYERS = 6

Models = dict[str, Any]
"""By the names of their optimizers; ``main`` is the one that Chainer's StandardUpdater updates."""


class Net(chainer.Chain):
    """Layers whose arrays make the peak, batch normalization, dropout, and an input of a size found at run time."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.dropout = dropout
        with self.init_scope():
            self.first = L.Convolution2D(None, 8, 1)
            self.layers = chainer.ChainList(*(L.Convolution2D(8, 8, 1) for _ in range(LAYERS)))
            self.norm = L.BatchNormalization(8)
            self.last = L.Linear(None, 10)

    def features(self, x: Any) -> Any:
        h = self.norm(self.first(x.astype(self.layers[0].W.dtype, copy=False)))
        for layer in self.layers:
            h = F.sigmoid(layer(h))
        return F.dropout(h, self.dropout) if self.dropout else h

    def forward(self, x: Any, t: Any) -> Any:
        loss = F.softmax_cross_entropy(self.last(self.features(x)), t)
        chainer.report({"loss": loss})
        return loss


class Forgetful(Net):
    """A part that is forgotten and computed again in the backward pass, by Chainer itself."""

    def features(self, x: Any) -> Any:
        forgotten = F.forget(lambda x: F.sigmoid(self.layers[0](self.first(x))), x)
        return self.norm(forgotten) + super().features(x)


class Generator(chainer.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.grow = L.Linear(8, 8 * 36)
            self.norm = L.BatchNormalization(8)
            self.up = L.Deconvolution2D(8, 8, 4, 2, 1)
            self.out = L.Convolution2D(8, 3, 1)

    def forward(self, z: Any) -> Any:
        h = F.reshape(F.relu(self.grow(z)), (len(z), 8, 6, 6))
        return F.tanh(self.out(F.relu(self.up(self.norm(h)))))


class Critic(chainer.Chain):
    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.dropout = dropout
        with self.init_scope():
            self.c1 = L.Convolution2D(3, 8, 3, pad=1)
            self.c2 = L.Convolution2D(8, 8, 4, 2, 1)
            self.out = L.Linear(8 * 36, 1)

    def forward(self, x: Any) -> Any:
        h = F.leaky_relu(self.c2(F.leaky_relu(self.c1(x))))
        return self.out(F.dropout(h, self.dropout) if self.dropout else h)


def noise() -> Any:
    return np.random.normal(size=(BATCH, 8)).astype(np.float32)


def dcgan(updater: Any) -> None:
    """One graph, two losses, two optimizers: as in Chainer's example."""
    made, judged = updater.get_all_optimizers()["gen"], updater.get_all_optimizers()["dis"]
    gen, dis = made.target, judged.target
    real = dis(updater.converter(updater.get_iterator("main").next(), updater.device)[0])
    fake = dis(gen(noise()))

    def loss_dis(dis: Any, fake: Any, real: Any) -> Any:
        loss = F.average(F.softplus(-real)) + F.average(F.softplus(fake))
        chainer.report({"loss": loss})
        return loss

    def loss_gen(gen: Any, fake: Any) -> Any:
        loss = F.average(F.softplus(-fake))
        chainer.report({"loss": loss})
        return loss

    judged.update(loss_dis, dis, fake, real)
    made.update(loss_gen, gen, fake)


def apart(updater: Any) -> None:
    """Two updates in a step, each of a graph of its own: what the first one makes is cut off from its maker."""
    made, judged = updater.get_all_optimizers()["gen"], updater.get_all_optimizers()["dis"]
    gen, dis = made.target, judged.target
    real = updater.converter(updater.get_iterator("main").next(), updater.device)[0]
    with chainer.no_backprop_mode():
        fake = gen(noise())
    judged.update(lambda: F.average(F.softplus(-dis(real))) + F.average(F.softplus(dis(fake.array))))
    made.update(lambda: F.average(F.softplus(-dis(gen(noise())))))


def one_loss(updater: Any) -> None:
    """One backward pass for two optimizers."""
    optimizers = updater.get_all_optimizers().values()
    gen, dis = (optimizer.target for optimizer in optimizers)
    updater.get_iterator("main").next()
    loss = F.average(dis(gen(noise())) ** 2)
    chainer.report({"loss": loss})
    for optimizer in optimizers:
        optimizer.target.cleargrads()
    loss.backward()
    for optimizer in optimizers:
        optimizer.update()


def wgan(updater: Any) -> None:
    """A critic with a gradient penalty (double backprop), then its generator."""
    made, judged = updater.get_all_optimizers()["gen"], updater.get_all_optimizers()["dis"]
    gen, dis = made.target, judged.target
    real = updater.converter(updater.get_iterator("main").next(), updater.device)[0]
    fake = gen(noise())
    between = chainer.Variable(0.3 * real + 0.7 * fake.array)
    (slope,) = chainer.grad([dis(between)], [between], enable_double_backprop=True)
    penalty = F.average((F.sqrt(F.batch_l2_norm_squared(slope)) - 1) ** 2)
    loss = F.average(dis(fake.array)) - F.average(dis(real)) + 10 * penalty
    chainer.report({"loss": loss, "penalty": penalty})
    dis.cleargrads()
    loss.backward()
    judged.update()
    loss = -F.average(dis(fake))
    gen.cleargrads()
    loss.backward()
    made.update()
    chainer.report({"loss": loss})


def graph_first(updater: Any) -> None:
    """Two graphs of one network, and an update between the backward passes: the second one reads old activations."""
    optimizer = updater.get_optimizer("main")
    x, t = updater.converter(updater.get_iterator("main").next(), updater.device)
    net = optimizer.target
    losses = [net(part, t[: len(part)]) for part in (x[::2].copy(), x[1::2].copy())]
    for loss in losses:
        net.cleargrads()
        loss.backward()
        optimizer.update()


def by_hand(updater: Any) -> None:
    """A backward pass of the program's own, then an update without a loss function."""
    optimizer = updater.get_optimizer("main")
    x, t = updater.converter(updater.get_iterator("main").next(), updater.device)
    loss = optimizer.target(x, t)
    optimizer.target.cleargrads()
    loss.backward()
    optimizer.update()


def frozen(models: Models, opts: dict[str, Any]) -> None:
    models["main"].first.disable_update()
    models["main"].norm.disable_update()


def half(models: Models, opts: dict[str, Any]) -> None:
    opts["main"].use_fp32_update()
    opts["main"].loss_scaling(scale=8)


def of_a_part(models: Models, opts: dict[str, Any]) -> None:
    """The optimizer has the last layer alone; the updater's loss function is the whole network's."""
    opts["main"].setup(models["main"].last)


def hooked(hook: Callable[[], Any]) -> Callable[[Models, Any], None]:
    return lambda models, opts: models["main"].layers[0].add_hook(hook())


class Calls(chainer.FunctionHook):  # type: ignore[misc]
    """What a function hook sees: which function, in which pass, and the first array's bytes."""

    name = "Calls"

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        self.seen.append((function.label, "forward", in_data[0].tobytes()))

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self.seen.append((function.label, "backward", *(g.tobytes() for g in out_grad if g is not None)))


@contextmanager
def timed(seen: list[Any]) -> Iterator[None]:
    with function_hooks.TimerHook() as functions, link_hooks.TimerHook() as links:
        yield
    seen += [(name, len(functions.summary())) for name in sorted(functions.summary())]
    seen += [name for name, _ in links.call_history]


def shifts(models: Models) -> list[Any]:
    """Extensions that change the optimizer between steps, and one that looks at each parameter."""
    changes = [
        extensions.ExponentialShift("alpha", 0.9),
        extensions.LinearShift("beta1", (0.9, 0.8), (1, 5)),
        extensions.WarmupShift("eta", 0.1, 4, 1.0),
        extensions.StepShift("weight_decay_rate", 0.5, 2, 0.01),
    ]
    return [
        *((one, (1, "iteration")) for one in changes),
        (extensions.FailOnNonNumber(), (1, "iteration")),
        (extensions.observe_lr(), (1, "iteration")),
    ]


@dataclass(frozen=True)
class Setup:
    """How one program trains.

    Attributes
    ----------
    models, optimizer, prepare
        What is trained, by what; and what is done to both before.
    update
        The updater's `update_core`; None: Chainer's.
    iterator
        The iterator over the data set.
    extensions
        Extensions of the trainer, with their triggers.
    around
        Entered around the training, with a list for what it sees.
    gradients, graph
        Parts of the reasons expected in `keeps_gradients` and `keeps_graph`; empty: there is none.
    """

    models: Callable[[], Models] = lambda: {"main": Net()}
    optimizer: Callable[[], Any] = optimizers.Adam
    hooks: tuple[Callable[[], Any], ...] = ()
    prepare: Callable[[Models, dict[str, Any]], None] = lambda models, opts: None
    update: Callable[[Any], None] | None = None
    iterator: Callable[[Any], Any] = lambda data: SerialIterator(data, BATCH)
    extensions: Callable[[Models], list[Any]] = lambda models: []
    around: Callable[[list[Any]], AbstractContextManager[Any]] = field(default=lambda seen: nullcontext())
    dtype: Any = np.float32
    gradients: str = ""
    graph: str = ""


def gan() -> Models:
    return {"gen": Generator(), "dis": Critic()}


def in_processes(data: Any) -> Any:
    order = chainer.iterators.ShuffleOrderSampler(np.random.RandomState(1))
    return MultiprocessIterator(data, BATCH, shuffle=None, order_sampler=order, n_processes=2)


def hook(make: Any, *values: Any) -> tuple[Callable[[], Any]]:
    return (lambda: make(*values),)


BY_HAND = "optimizer.update() comes after backward()"
TWO = "two backward passes visit one operator"

SETUPS: dict[str, Setup] = {
    "plain": Setup(),
    "by hand": Setup(update=by_hand, gradients=BY_HAND),
    "dcgan": Setup(gan, update=dcgan, graph=TWO),
    "one loss": Setup(gan, update=one_loss, gradients=BY_HAND),
    "two graphs": Setup(gan, update=apart),
    "gradient penalty": Setup(gan, update=wgan, gradients=BY_HAND),
    "graph first": Setup(update=graph_first, gradients=BY_HAND, graph="parameter has been updated"),
    "processes": Setup(iterator=in_processes),
    "forget": Setup(lambda: {"main": Forgetful()}, gradients="a backward pass of its own"),
    "WeightDecay": Setup(hooks=hook(optimizer_hooks.WeightDecay, 1e-3)),
    "Lasso": Setup(hooks=hook(optimizer_hooks.Lasso, 1e-4)),
    "GradientHardClipping": Setup(hooks=hook(optimizer_hooks.GradientHardClipping, -1e-3, 1e-3)),
    "GradientLARS": Setup(optimizer=optimizers.MomentumSGD, hooks=hook(optimizer_hooks.GradientLARS)),
    "GradientClipping": Setup(
        hooks=hook(optimizer_hooks.GradientClipping, 0.1), gradients="the hook GradientClipping"
    ),
    "GradientNoise": Setup(
        hooks=hook(optimizer_hooks.GradientNoise, 0.01), gradients="the hook GradientNoise"
    ),
    "shifts": Setup(extensions=shifts, optimizer=lambda: optimizers.AdamW(weight_decay_rate=0.01)),
    "graph dumped": Setup(extensions=lambda models: [(extensions.DumpGraph("loss"), None)]),
    "ParameterStatistics": Setup(
        extensions=lambda models: [(extensions.ParameterStatistics(models["main"].last), (3, "iteration"))],
        gradients="ParameterStatistics",
    ),
    "VariableStatisticsPlot": Setup(
        extensions=lambda models: [
            (extensions.VariableStatisticsPlot(models["main"].last), (4, "iteration"))
        ],
        gradients="VariableStatisticsPlot",
    ),
    "function hook": Setup(around=lambda seen: Calls(seen), gradients="the function hook Calls"),
    "timers": Setup(around=timed),
    "loss scaling": Setup(
        prepare=lambda models, opts: opts["main"].loss_scaling(scale=8), gradients="the loss is scaled"
    ),
    "dynamic loss scaling": Setup(
        prepare=lambda models, opts: opts["main"].loss_scaling(interval=2), gradients="the loss is scaled"
    ),
    "half": Setup(prepare=half, dtype=chainer.mixed16, gradients="the loss is scaled"),
    "SpectralNormalization": Setup(prepare=hooked(link_hooks.SpectralNormalization)),
    "WeightStandardization": Setup(prepare=hooked(link_hooks.WeightStandardization)),
    "frozen links": Setup(prepare=frozen),
    "a part": Setup(prepare=of_a_part),
}
