"""A DCGAN: two optimizers and an `update_core` of its own, as in Chainer's example; and one that keeps less alive."""

import numpy as np

import stowplan.chainer  # before chainer, which it mends for today's NumPy and Python

import chainer
import chainer.functions as F
import chainer.links as L
from chainer import training

BATCH, STEPS = 32, 8
images = np.random.default_rng(0).random((8 * BATCH, 3, 8, 8), dtype=np.float32)


def make_models():
    """Return a generator of images and a critic, by the names of their optimizers."""
    start = chainer.Sequential(L.Linear(32, 32 * 16), lambda h: F.reshape(h, (-1, 32, 4, 4)))
    grow = chainer.Sequential(L.BatchNormalization(32), F.relu, L.Deconvolution2D(32, 32, 4, 2, 1))
    stay = chainer.Sequential(L.Convolution2D(16, 16, 3, 1, 1), L.BatchNormalization(16), F.leaky_relu)
    gen = chainer.Sequential(start, grow, L.Convolution2D(32, 3, 1), F.tanh)
    dis = chainer.Sequential(L.Convolution2D(3, 16, 1), F.leaky_relu, stay.repeat(3), L.Linear(None, 1))
    return {"gen": gen, "dis": dis}


def make_noise():
    """Return what one batch is made from."""
    return np.random.standard_normal((BATCH, 32)).astype(np.float32)  # noqa: NPY002 (Chainer draws from it)


class OneGraph:
    """As in Chainer's example: both losses go through one batch."""

    def update_core(self):
        """Update the critic, then the generator."""
        gen, dis = self.get_optimizer("gen"), self.get_optimizer("dis")
        real = dis.target(self.converter(self.get_iterator("main").next(), self.device))
        made = dis.target(gen.target(make_noise()))
        dis.update(lambda: F.average(F.softplus(-real)) + F.average(F.softplus(made)))
        gen.update(lambda: F.average(F.softplus(-made)))


class TwoGraphs:
    """The critic's loss ends at the images: its graph is gone when the generator's is made."""

    def update_core(self):
        """Update the critic, then the generator."""
        gen, dis = self.get_optimizer("gen"), self.get_optimizer("dis")
        real = self.converter(self.get_iterator("main").next(), self.device)
        with chainer.no_backprop_mode():
            made = gen.target(make_noise())
        dis.update(
            lambda: F.average(F.softplus(-dis.target(real))) + F.average(F.softplus(dis.target(made.array)))
        )
        gen.update(lambda: F.average(F.softplus(-dis.target(gen.target(make_noise())))))


def train(step, updater, **options):
    """Train with an updater of Chainer's or stowplan's; return the parameters and the updater."""
    np.random.seed(0)  # noqa: NPY002
    opts = {
        name: chainer.optimizers.Adam(2e-4, beta1=0.5).setup(model) for name, model in make_models().items()
    }
    updater = type(step.__name__, (step, updater), {})(
        chainer.iterators.SerialIterator(images, BATCH), opts, **options
    )
    training.Trainer(updater, (STEPS, "iteration")).run()
    return [param.array for opt in opts.values() for param in opt.target.params()], updater


for step in (OneGraph, TwoGraphs):
    plain, _ = train(step, training.updaters.StandardUpdater)
    for schedule in (False, True):
        pool = stowplan.NumpyPool()
        found, updater = train(step, stowplan.chainer.Updater, pool=pool, schedule=schedule)
        print(f"{step.__name__}, {'scheduled' if schedule else 'as Chainer'}: ", end="")
        print(f"an arena of {pool.plan().arena_bytes:,} bytes, {pool.stats.replayed:,} requests replayed")
        print("    the same, bit by bit:", all(map(np.array_equal, plain, found)))
    print("    the scheduler keeps the graph:", updater.scheduler.stats.keeps_graph)
