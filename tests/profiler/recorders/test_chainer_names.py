"""Call sites that name Chainer's links and functions, on a real network under NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stowplan import NumpyRecorder, Profile
from stowplan.compat import enable_chainer
from stowplan.errors import MissingDependencyError

try:
    enable_chainer()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

import chainer
from chainer import functions, links


class Net(chainer.Chain):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.first = links.Linear(40, 50)
            self.rest = chainer.Sequential(functions.relu, links.Linear(50, 7))
        self.fails = False

    def forward(self, x: Any) -> Any:
        h = self.first(x)
        if self.fails:
            raise KeyError
        return self.rest(h)


@pytest.fixture
def model() -> Any:
    return links.Classifier(Net())


def train(model: Any, recorder: NumpyRecorder, steps: int) -> Profile:
    batch = np.ones((30, 40), "f"), np.zeros(30, "i")
    with recorder:
        for _ in range(steps):
            with recorder.step():
                loss = model(*batch)
                model.cleargrads()
                loss.backward()
                extra = functions.sum(batch[0])
            del loss, extra
    return recorder.profile()


@pytest.fixture
def names(model: Any) -> set[str]:
    """Who asks in a training step, without the user's frames."""
    return {site.partition(" > ")[2] for site in train(model, NumpyRecorder(sites=True), 3).sites}


def test_links_and_functions_are_named(names: set[str]) -> None:
    assert names >= {
        "/predictor/first > LinearFunction (forward)",
        "/predictor/first > LinearFunction (backward)",
        "/predictor/rest > ReLU (forward)",
        "/predictor/rest/0 > LinearFunction (forward)",
        "/predictor/rest/0 > LinearFunction (backward)",
        "SoftmaxCrossEntropy (backward)",
        "Sum (forward)",
    }
    assert {name.split(" > ")[0] for name in names if name.startswith("/")} == {
        "/predictor/first",
        "/predictor/rest",
        "/predictor/rest/0",
    }


def test_the_user_s_frame_stands_first(model: Any) -> None:
    profile = train(model, NumpyRecorder(sites=True), 3)
    frames = {site.partition(" > ")[0].rpartition("/")[2].partition(":")[0] for site in profile.sites}
    assert frames == {"test_chainer_names.py"}


def test_what_chainer_asks_for_is_not_changed(model: Any) -> None:
    named, plain = train(model, NumpyRecorder(sites=True), 4), train(model, NumpyRecorder(), 4)
    assert named.same_blocks(plain)
    assert (named.site >= 0).all()


def test_a_call_that_raises_leaves_no_name_behind(model: Any, names: set[str]) -> None:
    recorder = NumpyRecorder(sites=True)
    model.predictor.fails = True
    with recorder, pytest.raises(KeyError):
        model(np.ones((30, 40), "f"), np.zeros(30, "i"))
    model.predictor.fails = False
    with pytest.raises(chainer.utils.type_check.InvalidType), recorder:
        model(np.ones((30, 41), "f"), np.zeros(30, "i"))
    assert {site.partition(" > ")[2] for site in train(model, recorder, 3).sites} == names


@pytest.fixture(autouse=True)
def no_hook_is_left() -> Iterator[None]:
    yield
    assert not chainer.get_function_hooks()
    assert not chainer._get_link_hooks()
