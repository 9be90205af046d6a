"""``stowplan profile --graph``: a script gives the step graph of the training step that it marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan.cli.scripts import step_markers
from stowplan.cli.scripts.marked_graph_recorder import MarkedGraphRecorder
from stowplan.scheduling import StepGraph

from ....children import stowplan as run
from ....running import in_threads
from ...command_line import figures, refused

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


def train():
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


for k in range(steps):
    if form == "marked":
        import stowplan

        with stowplan.step():
            train()
    else:
        train()
print(optimizer.t, *(param.array.tobytes().hex()[:64] for param in model.params()))
"""
MARK = ("--step-function", "__main__:train")


@pytest.fixture
def script(tmp_path: Path, chainer: Any) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


@pytest.mark.parametrize(("form", "mark"), [("function", MARK), ("loop", MARK), ("marked", ())])
def test_a_script_is_recorded_and_scheduled(form: str, mark: tuple[str, ...], script: Path) -> None:
    folder = script.parent
    plain = run("run", "train.py", form, 7, 32, folder=folder)
    recorded = run("profile", "--graph", "32.graph", *mark, "train.py", form, 7, 32, folder=folder)
    assert not any(done.returncode for done in (plain, recorded)), recorded.stderr
    assert recorded.stdout == plain.stdout  # not a bit is another
    graph = StepGraph.load(folder / "32.graph")
    assert f"stowplan: {len(graph)} operators, {graph.values} values, lean peak " in recorded.stderr
    # Early where one call holds the backward pass and the update.
    update = "update W" if form == "function" else "update"
    assert {"Convolution2DFunction", "Convolution2DFunction'", update} <= set(graph.label)
    assert graph.seconds.sum() > 0
    parameters = 4 * (8 * 3 + 8 + 3 * (128 * 128 + 128) + 2 * 128 + 128 * 10 + 10)
    assert graph.resident_bytes >= 2 * parameters  # and the momentum of each
    assert not (folder / "train.profile").exists()

    found = figures("schedule", folder / "32.graph", "--points", 4)["curve"]
    assert len(found) > 1
    assert found[-1]["peak"] < found[0]["peak"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*MARK, "train.py", "fails", "9", "8"], "4 marked steps seen; expected 2 more"),
        (
            ["train.py", "loop", "9", "8"],
            "train.py: no step was marked; expected `with stowplan.step():` around the body of the training loop, or "
            "--step-function MODULE:FUNCTION; nothing was written\n",
        ),
        ([*MARK, "pond.py"], "6 marked steps seen, in none of which an optimizer of Chainer's updated"),
    ],
    ids=["too few", "unmarked", "no training"],
)
def test_without_a_graph_one_line_says_what_to_do(words: list[str], said: str, script: Path) -> None:
    (script.parent / "pond.py").write_text("def train(): pass\nfor _ in range(6): train()\n")
    done = run("profile", "--graph", "step.graph", *words, folder=script.parent)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.endswith("; nothing was written\n")
    assert not (script.parent / "step.graph").exists()


@pytest.mark.parametrize(
    "option", [["-o", "x.profile"], ["--no-sites"], ["--small", "8"], ["--device", "cpu"]]
)
def test_options_of_profiles_are_refused_beside_it(option: list[str], tmp_path: Path) -> None:
    path = tmp_path / "pond.py"
    path.write_text("print(1)\n")
    said = refused("profile", "--graph", tmp_path / "step.graph", *option, path)
    assert "--graph writes no profile; expected no --" in said


def train(chainer: Any, optimizer: Any, steps: int, key: str | None = None) -> None:
    links, functions = chainer.links, chainer.functions
    model = links.Linear(8, 4)
    optimizer.setup(model)
    x = np.ones((3, 8), np.float32)
    for _ in range(steps):
        with step_markers.step(key):
            optimizer.update(lambda: functions.sum(functions.relu(model(x))))
        with step_markers.step("evaluation"):
            model(x)


@pytest.fixture
def recorder() -> Iterator[MarkedGraphRecorder]:
    recorder = MarkedGraphRecorder(lambda graph: None)
    with step_markers.steps_go_to(recorder.step):
        yield recorder


def test_only_the_thread_that_began_is_recorded(chainer: Any, recorder: MarkedGraphRecorder) -> None:
    in_threads(lambda: train(chainer, chainer.optimizers.SGD(), 6))
    assert recorder.graph is None
    assert recorder.why_none.startswith("no step was marked")


def test_an_update_of_its_own_is_said(chainer: Any, recorder: MarkedGraphRecorder) -> None:
    class Careful(chainer.optimizers.SGD):  # type: ignore[misc,name-defined]
        def update(self, *args: Any, **named: Any) -> None:
            super().update(*args, **named)

    train(chainer, Careful(), 6)
    assert recorder.why_none == "1 marked step seen, but Careful has an update of its own"
    assert recorder.graph is None


def test_a_loss_that_fails_leaves_everything_as_it_was(chainer: Any, recorder: MarkedGraphRecorder) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    optimizer = chainer.optimizers.SGD().setup(chainer.links.Linear(8, 4))
    own = chainer.GradientMethod.update
    with pytest.raises(ZeroDivisionError), step_markers.step():
        optimizer.update(fail)
    assert "update" not in vars(optimizer)
    assert chainer.GradientMethod.update is own
    train(chainer, optimizer, 5)
    assert recorder.graph is not None
    assert chainer.GradientMethod.update is own
