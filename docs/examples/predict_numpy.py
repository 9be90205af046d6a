"""Will it fit? A function of NumPy arrays, predicted from small ones, and guarded."""

import numpy as np

import stowplan


def correlate(images):
    """Return how alike each pair of images is."""
    flat = images.reshape(len(images), -1)
    centred = (flat - flat.mean(axis=0)) / (flat.std(axis=0) + 1)
    return centred @ centred.T


prediction = stowplan.predict(correlate, np.random.default_rng(0).random((60, 40, 50)))
print(prediction.peak(images=(10_000, 512, 512)))
print(prediction.explain())
print(f"within 64 GiB: {prediction.largest('images', memory='64 GiB', images=(10_000, 512, 512)):,} images")

guarded = stowplan.guard(memory="100 MiB")(correlate)
print(guarded(np.ones((100, 100, 100))).shape)
try:
    guarded(np.ones((1_000, 100, 100)))
except MemoryError as error:
    print(error)
else:
    raise AssertionError("the guard let it pass")
