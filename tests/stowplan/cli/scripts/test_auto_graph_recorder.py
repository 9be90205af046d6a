"""``stowplan profile --graph``: a script, unchanged, gives the step graph of its training step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan.cli.scripts.auto_graph_recorder import recording_graph
from stowplan.scheduling import StepGraph

from ....children import stowplan as run
from ....running import in_threads
from ...command_line import refused, stowplan

TRAIN = """
import sys

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

form, steps, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
np.random.seed(0)


class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(3, 8, 1)
            self.first = L.Linear(8 * 4 * 4, 128)
            self.norm = L.BatchNormalization(128)
            self.second = L.Linear(128, 128)
            self.third = L.Linear(128, 128)
            self.out = L.Linear(128, 10)

    def forward(self, x, t):
        h = F.max_pooling_2d(F.relu(self.conv(x)), 2, 2)
        h = F.dropout(F.relu(self.norm(self.first(h))), 0.3)
        h = F.dropout(F.tanh(self.second(h)), 0.3)
        return F.softmax_cross_entropy(self.out(F.relu(self.third(h))), t)


model = Net()
optimizer = chainer.optimizers.MomentumSGD(0.01).setup(model)
for _ in range(steps):
    x = np.random.rand(batch, 3, 8, 8).astype(np.float32)
    t = np.random.randint(0, 10, batch).astype(np.int32)
    if form == "function":
        optimizer.update(model, x, t)
    else:
        model.cleargrads()
        loss = model(x, t)
        if form == "fails" and optimizer.t == 3:
            raise RuntimeError("in the middle of a step")
        loss.backward()
        optimizer.update()
print(optimizer.t, *(param.array.tobytes().hex()[:64] for param in model.params()))
"""


@pytest.fixture
def script(tmp_path: Path, chainer: Any) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


@pytest.mark.parametrize(("form", "steps"), [("function", 6), ("loop", 7)])
def test_a_script_is_recorded_and_scheduled(form: str, steps: int, script: Path) -> None:
    folder = script.parent
    plain = run("run", "train.py", form, steps, 32, folder=folder)
    recorded = run("profile", "--graph", "32.graph", "train.py", form, steps, 32, folder=folder)
    assert not any(done.returncode for done in (plain, recorded)), recorded.stderr
    assert recorded.stdout == plain.stdout  # not a bit is another
    graph = StepGraph.load(folder / "32.graph")
    assert f"stowplan: {len(graph)} operators, {graph.values} values, lean peak " in recorded.stderr
    assert {"Convolution2DFunction", "Convolution2DFunction'", "update W"} <= set(graph.label)
    assert graph.seconds.sum() > 0
    parameters = 4 * (8 * 3 + 8 + 3 * (128 * 128 + 128) + 2 * 128 + 128 * 10 + 10)
    assert graph.resident_bytes >= 2 * parameters  # and the momentum of each
    assert not (folder / "train.profile").exists()

    found = json.loads(stowplan("schedule", folder / "32.graph", "--points", 4, "--json").stdout)["curve"]
    assert len(found) > 1
    assert found[-1]["peak"] < found[0]["peak"]


def test_too_few_steps(script: Path) -> None:
    done = run("profile", "--graph", "step.graph", "train.py", "fails", 9, 8, folder=script.parent)
    assert done.returncode == 1
    assert "3 updates of Chainer's optimizers were seen" in done.stderr
    assert done.stderr.endswith("; nothing was written\n")
    assert not (script.parent / "step.graph").exists()


def test_a_script_without_chainer(tmp_path: Path) -> None:
    (tmp_path / "pond.py").write_text("print(1)\n")
    done = run("profile", "--graph", "step.graph", "pond.py", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "1\n")
    said = "no update of Chainer's optimizers was seen; expected optimizer.update(lossfun, ...)"
    assert said in done.stderr


@pytest.mark.parametrize(
    "option", [["-o", "x.profile"], ["--no-sites"], ["--small", "8"], ["--device", "cpu"]]
)
def test_options_of_profiles_are_refused_beside_it(option: list[str], tmp_path: Path) -> None:
    path = tmp_path / "pond.py"
    path.write_text("print(1)\n")
    said = refused("profile", "--graph", tmp_path / "step.graph", *option, path)
    assert "--graph writes no profile; expected no --" in said


def train(chainer: Any, optimizer: Any, steps: int) -> None:
    links, functions = chainer.links, chainer.functions
    model = links.Linear(8, 4)
    optimizer.setup(model)
    for _ in range(steps):
        x = np.ones((3, 8), np.float32)
        optimizer.update(lambda x: functions.sum(functions.relu(model(x))), x)


def test_chainer_s_method_is_back_afterwards(chainer: Any) -> None:
    own = chainer.GradientMethod.update
    found: list[StepGraph] = []
    with recording_graph(found.append) as recorder:
        assert chainer.GradientMethod.update is not own
        train(chainer, chainer.optimizers.SGD(), 3)
        assert recorder.graph is None
    assert chainer.GradientMethod.update is own
    assert found == []

    def fail() -> None:
        with recording_graph(found.append):
            train(chainer, chainer.optimizers.Adam(), 5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert chainer.GradientMethod.update is own
    assert [graph.label[0] for graph in found] == ["for LinearFunction"]


def test_the_first_optimizer_is_recorded_in_its_thread(chainer: Any) -> None:
    with recording_graph(lambda graph: None) as recorder:
        in_threads(lambda: train(chainer, chainer.optimizers.SGD(), 6))
        assert recorder.updates == 0
        train(chainer, chainer.optimizers.SGD(), 1)
        train(chainer, chainer.optimizers.SGD(), 9)  # another one
        assert (recorder.graph, recorder.updates) == (None, 10)


def test_an_update_of_its_own_is_said(chainer: Any) -> None:
    class Careful(chainer.optimizers.SGD):  # type: ignore[misc,name-defined]
        def update(self, *args: Any, **named: Any) -> None:
            super().update(*args, **named)

    with recording_graph(lambda graph: None) as recorder:
        train(chainer, Careful(), 5)
    assert recorder.reason == "Careful has an update of its own"
    assert recorder.graph is None


def test_a_loss_that_fails_leaves_everything_as_it_was(chainer: Any) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    optimizer = chainer.optimizers.SGD().setup(chainer.links.Linear(8, 4))
    with recording_graph(lambda graph: None) as recorder:
        with pytest.raises(ZeroDivisionError):
            optimizer.update(fail)
        assert "update" not in vars(optimizer)
        model = optimizer.target
        for _ in range(4):
            optimizer.update(lambda: chainer.functions.sum(model(np.ones((3, 8), np.float32))))
        assert recorder.graph is not None
