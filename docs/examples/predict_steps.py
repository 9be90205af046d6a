"""Will a batch fit? A step that was recorded at three small batch sizes answers for any other."""

import subprocess
import sys

import numpy as np

import stowplan


def record(batch):
    """Train a layer for three steps, and save the profile of one."""
    recorder = stowplan.NumpyRecorder()
    with recorder:
        weight = np.ones((2_000, 2_000), np.float32)
        for _ in range(3):
            with recorder.step():
                x = np.ones((batch, 2_000), np.float32)
                hidden = np.tanh(x @ weight)
                gradient = x.T @ (hidden - x)
                weight -= 0.01 * gradient
                del x, hidden, gradient
    recorder.profile().save(f"{batch}.profile")


def fit(*options):
    """Run the command, as in a shell."""
    profiles = [f"{batch}={batch}.profile" for batch in (40, 60, 80)]
    subprocess.run([sys.executable, "-m", "stowplan", "fit", *profiles, *options], check=True)


for batch in (40, 60, 80):
    record(batch)
fit("--batch", "400")
fit("--memory", "64MiB")
fit("--batch", "400", "--device", "cuda:2GiB")
