"""What users' programs have beside a network and a loop, trained plain, lean and under a budget: the same bits.

`training_setups` is the table: it says what the scheduler leaves, and the reason that its statistics give.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import chainer
import numpy as np
import pytest
from chainer.datasets import TupleDataset
from chainer.iterators import SerialIterator
from chainer.training import StandardUpdater, Trainer, extensions

from stowplan import NumpyPool
from stowplan.chainer import Updater, parameter_swap, scheduler
from stowplan.errors import BudgetError
from stowplan.scheduling import as_recorded, simulate
from stowplan.swapping import SwapFile

from ...children import printed
from .training_setups import BATCH, SETUPS, Models, Net, Setup

STEPS = 8
"""Watched, recorded, twice timed, and four by a schedule."""


def data() -> Any:
    rng = np.random.default_rng(0)
    images = rng.random((3 * BATCH, 3, 12, 12), dtype=np.float32)
    return TupleDataset(images, rng.integers(0, 10, 3 * BATCH, dtype=np.int32))


def saved(one: Any) -> dict[str, bytes]:
    """Return what Chainer saves of a model or an optimizer, by name."""
    serializer = chainer.serializers.DictionarySerializer()
    serializer.save(one)
    return {name: np.asarray(v).tobytes() for name, v in sorted(serializer.target.items()) if v is not None}


def make(setup: Setup, folder: Path, how: dict[str, Any] | None, steps: int = STEPS) -> tuple[Any, Models]:
    """Return a trainer, scheduled by these options or plain (None), and what is in it to compare."""
    np.random.seed(0)
    models = setup.models()
    opts = {name: setup.optimizer().setup(model) for name, model in models.items()}
    for opt in opts.values():
        for hook in setup.hooks:
            opt.add_hook(hook())
    setup.prepare(models, opts)
    base: Any = StandardUpdater if how is None else Updater
    own = {} if setup.update is None else {"update_core": setup.update}
    updater = type("Own", (base,), own)(
        setup.iterator(data()), opts, loss_func=models.get("main"), **(how or {})
    )
    trainer = Trainer(updater, (steps, "iteration"), out=str(folder))
    for number, (one, trigger) in enumerate(setup.extensions(models)):
        trainer.extend(one, name=str(number), trigger=trigger)
    return trainer, models


def results(trainer: Any, models: Models, setup: Setup) -> dict[str, Any]:
    """Train; return what the trainer observed (losses) and hooks saw, and all that is left in the end."""
    seen: list[Any] = []
    scheduler = getattr(trainer.updater, "scheduler", None)

    def look(trainer: Any) -> None:
        for name, value in sorted(trainer.observation.items()):
            seen.append((name, np.asarray(getattr(value, "array", value)).tobytes()))
        if scheduler is not None:
            scheduler.wait()

    trainer.extend(look, trigger=(1, "iteration"), priority=-1)
    with setup.around(seen):
        trainer.run(show_loop_exception_msg=False)
    opts = trainer.updater.get_all_optimizers().values()
    updated = {id(param) for opt in opts for param in opt.target.params()}
    others = [p.grad for model in models.values() for p in model.params() if id(p) not in updated]
    return {
        "seen": seen,
        "left": [saved(one) for one in (*models.values(), *opts)],
        "hyperparameters": [sorted(opt.hyperparam.get_dict().items()) for opt in opts],
        "other gradients": [grad.tobytes() for grad in others],
        "random": np.random.get_state(legacy=False)["state"]["key"].tobytes(),
        "graph": [
            sorted(re.sub(r"\d{6,}", "", file.read_text()).split(";"))
            for file in Path(trainer.out).glob("*.dot")
        ],
    }


def train(setup: Setup, folder: Path, how: dict[str, Any] | None = None) -> tuple[dict[str, Any], Any]:
    """Return the results, and the scheduler; None without one."""
    with chainer.using_config("dtype", setup.dtype):
        trainer, models = make(setup, folder, how)
        return results(trainer, models, setup), getattr(trainer.updater, "scheduler", None)


def budget_of(setup: Setup, folder: Path) -> int:
    """Return the bytes half-way between what lean steps take and the least that a schedule was found for."""
    with chainer.using_config("dtype", setup.dtype):
        trainer, models = make(setup, folder, {"budget": 1})
        with pytest.raises(BudgetError) as caught:
            results(trainer, models, setup)
    scheduler = trainer.updater.scheduler
    graph = scheduler.recordings[0].graph
    lean = simulate(graph, as_recorded(graph)).peak + scheduler.stats.retained_bytes
    # Several passes keep their order, and this one's least is the lean step, then.
    assert caught.value.least < lean or setup is SETUPS["two graphs"]
    parameters = sum(param.array.nbytes for model in models.values() for param in model.params())
    assert graph.resident_bytes >= parameters
    assert scheduler.stats.retained_bytes == graph.resident_bytes
    return int(caught.value.least + lean) // 2


@pytest.mark.parametrize("name", SETUPS)
def test_a_setup_trains_as_chainer_bit_by_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = SETUPS[name]
    reference, _ = train(setup, tmp_path)
    found, lean = train(setup, tmp_path, {"pool": NumpyPool(warmup=0, small=1033)})
    assert found == reference
    budget = 1 if setup.graph else budget_of(setup, tmp_path)
    with pytest.warns(RuntimeWarning, match="not held to the budget") if setup.graph else nullcontext():
        found, scheduled = train(setup, tmp_path, {"budget": budget})
    assert found == reference
    assert lean.stats.lean == STEPS - 1
    assert (scheduled.stats.recomputed > 0) == (scheduled.stats.scheduled == 4) == (not setup.graph)
    for expected, reason in [
        (setup.gradients, lean.stats.keeps_gradients),
        (setup.gradients, scheduled.stats.keeps_gradients),
        (setup.graph, scheduled.stats.keeps_graph),
    ]:
        assert (reason is None) if not expected else (expected in reason)

    monkeypatch.setattr(parameter_swap, "SMALL", 1)
    monkeypatch.setattr(scheduler, "SwapFile", partial(SwapFile, keep_cache=True))
    with pytest.warns(RuntimeWarning, match="not held to the budget") if setup.graph else nullcontext():
        found, swapping = train(setup, tmp_path, {"budget": 1 << 30, "swap_parameters": True})
    assert found == reference
    assert swapping.stats.swapped_parameters > 0
    assert swapping.stats.keeps_parameters is None


@pytest.mark.parametrize("name", ["two graphs", "gradient penalty", "ParameterStatistics", "a part"])
def test_a_setup_may_begin_lean(name: str, tmp_path: Path) -> None:
    reference, _ = train(SETUPS[name], tmp_path)
    found, scheduler = train(SETUPS[name], tmp_path, {"watch": False})
    assert found == reference
    assert (scheduler.stats.watched, scheduler.stats.lean) == (0, STEPS)


@pytest.mark.parametrize("how", [{}, {"budget": 780_000}], ids=["lean", "budget"])
def test_a_snapshot_is_resumed_under_a_schedule(how: dict[str, Any], tmp_path: Path) -> None:
    """Interrupted after a scheduled step, and gone on with, by a new scheduler: as plain training without a break."""
    # In order, and without dropout: where a random stream stands is in no snapshot.
    setup = Setup(
        lambda: {"main": Net(dropout=0)}, iterator=lambda data: SerialIterator(data, BATCH, shuffle=False)
    )
    half_way = 6

    def run(how: dict[str, Any] | None, steps: int, resumed: str | None = None) -> tuple[Any, Any]:
        trainer, models = make(setup, tmp_path, how, steps)
        trainer.extend(extensions.snapshot(), trigger=(half_way, "iteration"))
        if resumed is not None:
            chainer.serializers.load_npz(tmp_path / resumed, trainer)
        return results(trainer, models, setup), getattr(trainer.updater, "scheduler", None)

    reference, _ = run(None, 2 * half_way)
    before, first = run(how, half_way)
    after, second = run(how, 2 * half_way, f"snapshot_iter_{half_way}")
    assert (first.stats.scheduled, second.stats.scheduled) == ((2, 2) if how else (0, 0))
    assert before["seen"] + after["seen"] == reference["seen"]
    assert {**reference, "seen": None} == {**after, "seen": None}


def test_worker_processes_may_be_spawned(tmp_path: Path) -> None:
    program = tmp_path / "spawned.py"
    program.write_text(SPAWNED, encoding="utf-8")
    assert printed(program, tmp_path).split() == [digest(train(SETUPS["processes"], tmp_path)[0])]


def digest(found: dict[str, Any]) -> str:
    return hashlib.sha256(repr(found).encode()).hexdigest()


SPAWNED = """
import stowplan.chainer  # which the workers import, too: it mends Chainer for today's NumPy

if __name__ == "__main__":
    import multiprocessing, pathlib, sys
    from tests.integrations.chainer.test_training_setups import SETUPS, NumpyPool, digest, train

    multiprocessing.set_start_method("spawn")
    print(digest(train(SETUPS["processes"], pathlib.Path(sys.argv[1]), {"pool": NumpyPool(warmup=0)})[0]))
"""
