"""A network's step, to be run again and again: training or inference, on the host or on a GPU.

A step does what Chainer's ``StandardUpdater`` does: it makes the batch out of examples, runs forward, clears the
gradients of the step before, runs backward, drops the loss, and updates.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Literal

import numpy as np

from ..models import Model
from .data import Data, Example

Phase = Literal["training", "inference"]
PHASES: tuple[Phase, ...] = ("training", "inference")


class Workload:
    """A step that can be run again and again.

    Parameters
    ----------
    model, phase, batch
        What the step is of.
    data
        Gives the examples; its seed is also that of the parameters.
    gpu
        Whether it runs on CuPy's current device.
    """

    def __init__(self, model: Model, phase: Phase, batch: int, data: Data, gpu: bool = False) -> None:
        import chainer

        np.random.seed(data.seed)  # noqa: NPY002 (Chainer draws from it)
        self._model, self._phase = model, phase
        self._device = chainer.get_device("@cupy:0" if gpu else "@numpy")
        self._network = model.network()
        self._network.to_device(self._device)
        self._set_up()
        self.examples = data.examples(model, batch)

    def twin(self) -> Workload:
        """Return a workload of the same examples and parameters, with its own gradients and optimizer's state.

        Run a step before: parameters are shared only if they have been initialized.
        """
        twin = copy.copy(self)
        twin._network = self._network.copy()
        twin._set_up()
        return twin

    def step(self, examples: Sequence[Example] | None = None) -> None:
        """Run one step to its end, with these examples instead of its own if they are given."""
        import chainer

        arrays = self._convert(examples or self.examples)
        if self._phase == "training":
            self._optimizer.update(self._network, *arrays)
        else:
            with chainer.using_config("train", False), chainer.no_backprop_mode():
                self._network.predict(arrays[0])
        if self.on_device:
            chainer.backends.cuda.Stream.null.synchronize()

    @property
    def optimizer(self) -> Any:
        """Chainer's; None in inference."""
        return self._optimizer

    @property
    def on_device(self) -> bool:
        """Whether it runs on CuPy's device."""
        return self._device.xp is not np

    @property
    def retained_bytes(self) -> int:
        """Bytes of parameters, statistics and the optimizer's state; not of gradients, which each step makes again."""
        return sum(self._retained())

    def retained_in(self, page: int) -> int:
        """Return these bytes in pages: whole ones for what is larger than half a page, shared ones for the rest."""
        large = sum(-(-size // page) for size in self._retained() if 2 * size > page)
        small = sum(size for size in self._retained() if 2 * size <= page)
        return (large + -(-small // page)) * page

    def _retained(self) -> list[int]:
        return [np.asarray(value).nbytes for _, value in self._serialized()]

    def _serialized(self) -> Iterator[tuple[str, Any]]:
        """Yield parameters and statistics, then the optimizer's state, by name."""
        from chainer.serializers import DictionarySerializer

        for target in (self._network, self._optimizer):
            if target is None:
                continue
            serializer = DictionarySerializer()
            serializer.save(target)
            for name, value in sorted(serializer.target.items(), key=itemgetter(0)):
                if value is not None:
                    yield name, value

    def _set_up(self) -> None:
        import chainer

        self._optimizer: Any = None
        if self._phase == "training":
            self._optimizer = getattr(chainer.optimizers, self._model.optimizer)().setup(self._network)

    def _convert(self, examples: Sequence[Example]) -> tuple[Any, ...]:
        from chainer.dataset import concat_examples

        if self._model.kind == "sentences":
            return tuple([self._device.send(a) for a in column] for column in zip(*examples, strict=True))
        padding = -1 if self._model.kind == "padded" else None
        return tuple(concat_examples(examples, self._device, padding))
