"""The programs: what each does again and again, the packages that it needs, and a small and a large size for it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Program:
    """A script of `SCRIPTS`.

    Attributes
    ----------
    name
        The file's name without ``.py``, and behind a colon what the script is told before its size, if anything.
    title
        For tables.
    quick
        Argument with which it takes less than a second, beside its imports.
    long
        Argument with which it takes some ten times as long as without one.
    needs
        Modules that it imports beside NumPy.
    """

    name: str
    title: str
    quick: int
    long: int
    needs: tuple[str, ...] = ()

    @property
    def script(self) -> Path:
        """Its file."""
        return SCRIPTS / f"{self.name.partition(':')[0]}.py"

    def missing(self) -> str | None:
        """Say what has to be installed before it can run; None if it can."""
        absent = [module for module in self.needs if importlib.util.find_spec(module) is None]
        if not absent:
            return None
        extra = "torch" if "torch" in absent else "programs"
        return f"left out: no {' and no '.join(absent)}; expected: pip install 'stowplan[{extra}]'"


STARTUP = Program("startup", "start-up: import numpy", 0, 0)
"""Not a program: what it costs to have a contestant at all."""

PROGRAMS = (
    STARTUP,
    Program("wave_levels", "wave equation, three levels in turn", 120, 10000),
    Program("shallow_water", "shallow water, Adams-Bashforth", 60, 8000),
    Program("lattice_boltzmann", "lattice Boltzmann", 20, 1500),
    Program("jacobi", "Jacobi's method", 120, 7000),
    Program("deconvolution", "Richardson-Lucy deconvolution (SciPy)", 15, 1000, ("scipy",)),
    Program("mlp_adam", "perceptron with Adam, odd last batch", 3, 180),
    Program("autograd_network", "network (autograd)", 12, 1000, ("autograd",)),
    Program("sklearn_mlp", "MLPRegressor (scikit-learn)", 3, 250, ("sklearn",)),
    Program("incremental_pca", "IncrementalPCA (scikit-learn)", 6, 250, ("sklearn",)),
    Program("boosting", "gradient boosting (pandas, scikit-learn)", 4, 250, ("pandas", "sklearn")),
    Program("mixture", "k-means, then EM, then Metropolis", 10, 600),
    Program("wavelets", "wavelets, frames of many sizes (PyWavelets)", 12, 900, ("pywt",)),
    Program("tiles", "tiles in a ThreadPoolExecutor (SciPy)", 3, 150, ("scipy",)),
    Program("spectra_asyncio", "spectra in asyncio tasks", 15, 1200),
    Program("bootstrap_joblib", "bootstrap in joblib's threads", 25, 1600, ("joblib",)),
    Program("finite_volume", "blast wave, finite volumes", 6, 350),
    Program("heat_implicit", "implicit heat, conjugate gradients (SciPy)", 20, 1300, ("scipy",)),
    Program("particle_filter", "particle filter", 40, 2000),
    Program("video", "what moves in a video, several scales", 20, 1400),
    Program("text_decoder", "decoder of text, keys and values kept", 1, 10),
)
NETWORKS = tuple(
    Program(f"torch_training:{name}", f"{title}, training (PyTorch)", 5, 600, ("torch",))
    for name, title in {"resnet18": "ResNet-18", "unet": "U-Net", "gpt": "GPT", "lstm": "LSTM"}.items()
)
"""Those of PyTorch: in an environment of their own, and a table of their own."""
