"""A real Trainer on NumPy, its updates and evaluations as steps of a pool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
import numpy as np
import pytest
from chainer.training import Trainer, extensions, updaters

from stowplan import NumpyPool
from stowplan.chainer import MemoryReport, Updater, evaluate_in_steps, update_in_steps

TRAINING, EVALUATION, BATCH, UNITS = 70, 25, 10, 64
"""The last batch of an evaluation is a short one."""


class Perceptron(chainer.Chain):
    """Two layers, the first of them forgotten and computed again on demand."""

    def __init__(self, forget: bool = False) -> None:
        super().__init__()
        self.forget = forget
        with self.init_scope():
            self.l1 = L.Linear(None, UNITS)
            self.l2 = L.Linear(UNITS, UNITS)
            self.l3 = L.Linear(UNITS, 10)

    def body(self, x: Any) -> Any:
        return F.relu(self.l2(F.relu(self.l1(x))))

    def forward(self, x: Any) -> Any:
        return self.l3(F.forget(self.body, x) if self.forget else self.body(x))


def samples(n: int, seed: int) -> Any:
    data = np.random.default_rng(seed)
    images = data.standard_normal((n, 200)).astype(np.float32)
    return chainer.datasets.TupleDataset(images, data.integers(0, 10, n, dtype=np.int32))


def train(
    out: Path,
    pool: NumpyPool | None,
    make_updater: Callable[..., Any] = Updater,
    make_evaluator: Callable[..., Any] = extensions.Evaluator,
    epochs: int = 6,
    forget: bool = False,
) -> Any:
    """Train a perceptron; return the trainer. What is planned is ready when the next step begins."""
    np.random.seed(3)
    model = L.Classifier(Perceptron(forget))
    optimizer = chainer.optimizers.Adam().setup(model)
    train_iter = chainer.iterators.SerialIterator(samples(TRAINING, 1), BATCH)
    test_iter = chainer.iterators.SerialIterator(samples(EVALUATION, 2), BATCH, repeat=False, shuffle=False)
    if pool is None:
        updater = updaters.StandardUpdater(train_iter, optimizer)
    else:
        updater = make_updater(train_iter, optimizer, pool=pool)
    trainer = Trainer(updater, (epochs, "epoch"), out=str(out))
    trainer.extend(make_evaluator(test_iter, model))
    if pool is not None:
        trainer.extend(MemoryReport(pool))
        trainer.extend(lambda trainer: pool.wait(), name="wait", trigger=(1, "iteration"))
    trainer.extend(extensions.LogReport())
    trainer.run()
    return trainer


def log_of(trainer: Any) -> list[dict[str, float]]:
    log: list[dict[str, float]] = trainer.get_extension("LogReport").log
    return log


def results(trainer: Any) -> tuple[dict[str, bytes], list[dict[str, float]]]:
    """Everything that was computed: parameters and optimizer state, as bytes, and the log without the pool's."""
    state = chainer.serializers.DictionarySerializer()
    state.save(trainer.updater)
    log = [
        {k: v for k, v in entry.items() if not k.startswith("pool/") and k != "elapsed_time"}
        for entry in log_of(trainer)
    ]
    return {name: np.asarray(value).tobytes() for name, value in state.target.items()}, log


def existing(iterator: Any, optimizer: Any, pool: NumpyPool) -> Any:
    """An updater that is Chainer's, whose updates are steps."""
    updater = updaters.StandardUpdater(iterator, optimizer)
    update_in_steps(updater, pool)
    return updater


@pytest.mark.parametrize(("forget", "make_updater"), [(False, Updater), (True, Updater), (False, existing)])
def test_training_and_evaluation_are_replayed_and_change_no_bit(
    tmp_path: Path, forget: bool, make_updater: Any
) -> None:
    pool = NumpyPool()
    pooled = train(tmp_path, pool, make_updater, forget=forget)
    assert results(pooled) == results(train(tmp_path, None, forget=forget))
    stats = pool.stats
    assert stats.plans in (2, 3)  # training, evaluation, and its short last batch unless it fits the former
    assert stats.reoptimizations == 0
    for entry in log_of(pooled)[3:]:
        assert entry["pool/replayed"] > 0.95
        assert entry["pool/plans"] == stats.plans
    assert "escaped" not in stats.reasons  # not even the batch, which the classifier's graph holds
    last = log_of(pooled)[-1]
    assert last["pool/reserved"] >= stats.arena_bytes > 0
    assert last["pool/live_peak"] == stats.peak_live_bytes
    assert last["pool/guests"] == 0
    assert 0 < last["pool/lower_bound"] <= stats.arena_bytes


def test_batches_that_are_dictionaries_or_single_arrays() -> None:
    """Whatever the converter makes of a batch reaches the function as Chainer passes it on."""

    class Target(chainer.Chain):
        def forward(self, x: Any, y: Any = 0.0) -> None:
            seen.append((float(x.sum()), float(np.sum(y))))

    for made, expected in (
        (lambda batch, device: np.stack(batch), (3.0, 0.0)),
        (lambda batch, device: {"x": np.stack(batch), "y": np.ones(4)}, (3.0, 4.0)),
        (lambda batch, device: (np.stack(batch), np.ones(5)), (3.0, 5.0)),
    ):
        seen: list[tuple[float, float]] = []
        iterator = chainer.iterators.SerialIterator([np.ones(1)] * 3, 3, repeat=False, shuffle=False)
        evaluator = extensions.Evaluator(iterator, Target(), converter=made)
        pool = NumpyPool(small=0)
        assert evaluate_in_steps(evaluator, pool)
        evaluator()
        assert seen == [expected]
        assert pool.stats.reasons["no_plan"] > 0  # in a step


def test_an_evaluation_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    class Own(extensions.Evaluator):  # type: ignore[misc]
        def evaluate(self) -> dict[str, float]:
            self.get_iterator("main").reset()
            arrays = [self.converter(batch, self.device) for batch in self.get_iterator("main")]
            return {"batches": len(arrays)}

    pool = NumpyPool()
    trainer = train(tmp_path, pool, make_evaluator=Own)
    assert log_of(trainer)[-1]["batches"] == 3
    assert pool.stats.plans == 1


def test_a_pool_that_is_entered_already_is_not_entered_again(tmp_path: Path) -> None:
    pool = NumpyPool()
    with pool:
        trainer = train(tmp_path, pool)
    assert results(trainer) == results(train(tmp_path, None))
    assert pool.stats.reasons["outside"] > 0  # the model, the data
    assert log_of(trainer)[-1]["pool/replayed"] > 0.8  # the trainer's own requests count, too
