"""Chainer's MNIST example on the GPU, and the example of the documentation's page on CuPy."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from stowplan import CupyPool

pytestmark = pytest.mark.gpu

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "cupy_training.py"


def test_the_documentation_s_example(cupy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "replayed" in capsys.readouterr().out


def test_two_lines_change_no_bit_and_replay(cupy: Any, chainer: Any, tmp_path: Path) -> None:
    from experiments.examples import train_mnist

    def run(pool: CupyPool | None) -> tuple[dict[str, bytes], list[dict[str, float]]]:
        cupy.random.seed(0)  # the parameters whose shapes the first step finds are drawn on the device
        trainer = train_mnist.train(
            pool, out=str(tmp_path), device="@cupy:0", epochs=8, samples=(1050, 250), units=100
        )
        model = trainer.updater.get_optimizer("main").target
        log = trainer.get_extension("LogReport").log
        return {name: p.array.get().tobytes() for name, p in model.namedparams()}, log

    pool = CupyPool()
    parameters, log = run(pool)
    default, default_log = run(None)
    assert parameters == default
    for entry, expected in zip(log, default_log, strict=True):
        assert {k: entry[k] for k in expected if k != "elapsed_time"} == {
            k: v for k, v in expected.items() if k != "elapsed_time"
        }
    assert log[-1]["pool/replayed"] > 0.8  # what the trainer sums up between the steps counts, too
    print(pool.report())
