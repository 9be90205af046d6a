"""The functions: 40 of libraries, and ten with traps; with small examples, and the shapes they are measured at."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """One function.

    Attributes
    ----------
    name
        The name in the table; up to the first dot, the library's.
    function
        Takes arrays alone; imports its library when it is called.
    examples
        Shapes of the example arrays, in order.
    at
        Shapes of the measured ones, by argument.
    values
        ``"normal"``, ``"image"`` (bytes), ``"labels"`` (0 to 9) or ``"definite"``.
    """

    name: str
    function: Callable[..., Any]
    examples: tuple[tuple[int, ...], ...]
    at: Shapes
    values: str = "normal"
    trap: bool = False


def arrays(case: Case, shapes: list[tuple[int, ...]], seed: int) -> list[Any]:
    """Return random arrays of some shapes, of the case's kind of values."""
    rng = np.random.default_rng(seed)
    if case.values == "image":
        return [rng.integers(0, 256, shape, np.uint8) for shape in shapes]
    if case.values == "labels":
        return [rng.integers(0, 10, shape) for shape in shapes]
    if case.values == "definite":
        return [np.eye(*shape) * 4 + rng.random(shape) / max(shape) for shape in shapes]
    return [rng.standard_normal(shape) for shape in shapes]


class Library:
    """A module that is imported when one of its functions is called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


signal, ndimage, sparse = Library("scipy.signal"), Library("scipy.ndimage"), Library("scipy.sparse")


def library(
    path: str,
    examples: tuple[tuple[int, ...], ...],
    at: Shapes,
    values: str = "normal",
    more: tuple[Any, ...] = (),
    **options: Any,
) -> Case:
    """Return the case of a library's function of one array, named by its module and itself."""
    module, _, name = path.rpartition(".")

    def of(x: Any) -> Any:
        return getattr(Library(module), name)(x, *more, **options)

    return Case(path, of, examples, at, values)


def estimator(path: str, at: Shapes, **options: Any) -> Case:
    """Return the case of an estimator of scikit-learn, made and fitted to one array."""
    module, _, name = path.rpartition(".")

    def of(x: Any) -> Any:
        return getattr(Library(f"sklearn.{module}"), name)(**options).fit_transform(x)

    return Case(f"sklearn {name}", of, TABLE, at)


def raster(path: str) -> Case:
    """Return the case of a function of xarray-spatial with a raster of one array."""
    module, _, name = path.rpartition(".")

    def of(x: Any) -> Any:
        made = Library("xarray").DataArray(x, dims=("y", "x"), attrs={"res": (1.0, 1.0)})
        return getattr(Library(module), name)(made).data

    return Case(path, of, SQUARE, LARGE)


def standardize(x: Any) -> Any:
    """Return columns of mean 0 and deviation 1."""
    return (x - x.mean(axis=0)) / x.std(axis=0)


def smooth(x: Any) -> Any:
    """Return means of 9 neighbours, by a view of windows."""
    return np.lib.stride_tricks.sliding_window_view(x, 9, axis=1).mean(axis=-1)


def heat(x: Any) -> Any:
    """Return a plate after five steps of heat conduction."""
    for _ in range(5):
        inner = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        x = x.copy()
        x[1:-1, 1:-1] = inner / 4
    return x


def laplacian(x: Any) -> Any:
    """Return the product of a tridiagonal sparse matrix with a vector."""
    n = len(x)
    matrix = sparse.diags([x[1:], x, x[1:]], [-1, 0, 1], shape=(n, n), format="csr")
    return matrix @ x


def sparse_product(x: Any) -> Any:
    """Return the diagonal of a sparse product."""
    matrix = sparse.diags([x], [0], format="csr")
    return (matrix @ matrix).diagonal()


def tall_svd(x: Any) -> Any:
    """Return a thin decomposition."""
    return np.linalg.svd(x, full_matrices=False)


def low_pass(x: Any) -> Any:
    """Filter forward and back."""
    return signal.sosfiltfilt(signal.butter(4, 0.2, output="sos"), x)


def distances(x: Any) -> Any:
    """Return how far each pixel is from the background."""
    return ndimage.distance_transform_edt(x > 0)


def halved(x: Any) -> Any:
    """Return an image of half the side."""
    return Library("skimage.transform").resize(x, (x.shape[0] // 2, x.shape[1] // 2))


def pairwise(x: Any) -> Any:
    """Return the distances of all rows."""
    return Library("sklearn.metrics").pairwise_distances(x)


SQUARE, LARGE, FAIR = ((100, 100),), {"x": (6000, 6000)}, {"x": (4000, 4000)}
TABLE, ROWS = ((300, 20),), {"x": (400_000, 20)}
LINE, LONG = ((1000,),), {"x": (20_000_000,)}

LIBRARIES = [
    Case("numpy.standardize", standardize, SQUARE, LARGE),
    Case("numpy.heat (5 steps)", heat, SQUARE, LARGE),
    Case("numpy.matmul", lambda x, y: x @ y, ((40, 60), (60, 50)), {"x": (3000, 2000), "y": (2000, 4000)}),
    Case("numpy.outer", lambda x, y: np.outer(x, y), ((50,), (60,)), {"x": (8000,), "y": (6000,)}),
    library("numpy.cov", ((60, 300),), {"x": (600, 40_000)}),
    library("numpy.percentile", SQUARE, FAIR, more=(50,), axis=0),
    library("numpy.fft.fft2", SQUARE, {"x": (3000, 3000)}),
    library("numpy.pad", SQUARE, LARGE, more=(8,), mode="reflect"),
    Case("numpy.sliding mean", smooth, SQUARE, FAIR),
    Case("numpy.linalg.svd (tall)", tall_svd, ((300, 30),), {"x": (100_000, 60)}),
    library("numpy.linalg.inv", SQUARE, {"x": (2500, 2500)}),
    Case("scipy.signal.lfilter", lambda x: signal.lfilter([0.1, 0.2], [1.0, -0.5], x), LINE, LONG),
    Case("scipy.signal.sosfiltfilt", low_pass, LINE, LONG),
    Case("scipy.signal.convolve2d", lambda x: signal.convolve2d(x, np.ones((5, 5))), SQUARE, FAIR),
    Case("scipy.signal.fftconvolve", lambda x: signal.fftconvolve(x, np.ones((5, 5))), SQUARE, FAIR),
    library("scipy.signal.welch", LINE, LONG),
    library("scipy.signal.detrend", LINE, LONG),
    library("scipy.ndimage.gaussian_filter", SQUARE, LARGE, more=(3.0,)),
    library("scipy.ndimage.median_filter", SQUARE, FAIR, more=(3,)),
    library("scipy.ndimage.sobel", SQUARE, LARGE),
    library("scipy.ndimage.zoom", SQUARE, {"x": (3000, 3000)}, more=(2,), order=1),
    Case("scipy.ndimage.label", lambda x: ndimage.label(x > 0), SQUARE, LARGE),
    Case("scipy.ndimage.distance_transform_edt", distances, SQUARE, {"x": (3000, 3000)}),
    library("scipy.linalg.cholesky", SQUARE, {"x": (3000, 3000)}, "definite"),
    library("scipy.linalg.lu", SQUARE, {"x": (2500, 2500)}, "definite"),
    library("scipy.linalg.expm", ((60, 60),), {"x": (1000, 1000)}, "definite"),
    Case("scipy.sparse laplacian", laplacian, LINE, {"x": (10_000_000,)}),
    Case("scipy.sparse product", sparse_product, LINE, {"x": (5_000_000,)}),
    library("scipy.sparse.csr_array", SQUARE, FAIR),
    library("skimage.color.rgb2gray", ((100, 100, 3),), {"x": (4000, 4000, 3)}, "image"),
    library("skimage.filters.gaussian", SQUARE, LARGE, "image", more=(2.0,)),
    library("skimage.filters.threshold_otsu", SQUARE, {"x": (8000, 8000)}, "image"),
    library("skimage.feature.canny", SQUARE, FAIR, "image"),
    Case("skimage.transform.resize", halved, SQUARE, LARGE, "image"),
    library("skimage.restoration.denoise_tv_chambolle", SQUARE, {"x": (3000, 3000)}, "image", max_num_iter=5),
    estimator("preprocessing.StandardScaler", ROWS),
    estimator("preprocessing.PolynomialFeatures", ROWS, degree=2),
    estimator("decomposition.PCA", ROWS, n_components=5, svd_solver="covariance_eigh"),
    Case("sklearn pairwise_distances", pairwise, TABLE, {"x": (8000, 20)}),
    raster("xrspatial.slope"),
    raster("xrspatial.hillshade"),
]


def in_place(x: Any) -> Any:
    """Ask for nothing."""
    x *= 2
    np.sqrt(np.abs(x, out=x), out=x)
    return x


def threads(x: Any) -> Any:
    """Run as many at once as chance says."""
    parts = np.array_split(x, 4)
    running = [threading.Thread(target=lambda part: np.exp(part) * 2, args=(part,)) for part in parts]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return x + 1


def recursion(x: Any) -> Any:
    """Make requests whose number depends on the length."""
    if len(x) < 2:
        return x
    return np.concatenate([recursion(x[: len(x) // 2]), recursion(x[len(x) // 2 :])])


_cache: dict[int, Any] = {}


def cached(x: Any) -> Any:
    """Ask for more at the first call of a length."""
    if len(x) not in _cache:
        _cache[len(x)] = np.sin(np.arange(len(x)))
    return x * _cache[len(x)]


def switching(x: Any) -> Any:
    """Take another algorithm beyond a size."""
    if x.size > 5_000_000:
        return np.sort(x.copy()) + x[::-1] * (x + 1)
    return x * 2


def converging(x: Any) -> Any:
    """Keep as many arrays as the data says."""
    kept = [x]
    while np.abs(kept[-1]).max() > 1:
        kept.append(kept[-1] / 2)
    return kept


def shorter_side(x: Any) -> Any:
    """Return a size that is no polynomial."""
    return np.zeros((min(x.shape), 1000)) + x.sum()


TRAPS = [
    Case("trap: data-dependent size", lambda x: x[x > 0] * 2, LINE, LONG, trap=True),
    Case("trap: in place", in_place, SQUARE, LARGE, trap=True),
    Case("trap: views", lambda x: x.reshape(-1)[::2].T, SQUARE, LARGE, trap=True),
    Case("trap: generator", lambda x: (row * 2 for row in x), SQUARE, LARGE, trap=True),
    Case("trap: threads", threads, LINE, LONG, trap=True),
    Case("trap: recursion", recursion, LINE, {"x": (1_000_000,)}, trap=True),
    Case("trap: cache", cached, LINE, LONG, trap=True),
    Case("trap: switch at a size", switching, LINE, LONG, trap=True),
    Case("trap: iterations that differ", converging, SQUARE, {"x": (3000, 3000)}, trap=True),
    Case("trap: the shorter side", shorter_side, SQUARE, {"x": (6000, 5000)}, trap=True),
]
CASES = [*LIBRARIES, *TRAPS]
