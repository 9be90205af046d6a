"""The compiled extensions; everything else stands in setup.cfg.

Environment variables
---------------------
STOWPLAN_DEBUG
    ``1`` asserts the cores' invariants after every mutation (slow).
"""

import os
from glob import glob

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

COMPILE_ARGS = ["-std=c++17", "-O3", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread"]
LINK_ARGS = ["-pthread"]
MACROS = [("NPY_NO_DEPRECATED_API", "NPY_1_22_API_VERSION"), ("NPY_TARGET_VERSION", "NPY_1_22_API_VERSION")]
if os.environ.get("STOWPLAN_DEBUG") == "1":
    COMPILE_ARGS += ["-O1", "-g", "-UNDEBUG"]
    MACROS += [("STOWPLAN_DEBUG", "1")]
else:
    COMPILE_ARGS += ["-g0"]  # Python's own flags ask for debug symbols, ten times the code

HEADERS = ("profiler/*.hpp", "profiler/core/*.hpp")  # the recorder's, which the allocator builds upon


def extension(package: str, name: str, cores: "list[str]") -> Extension:
    """Build ``stowplan.<package>.<name>`` from ``<package>/<name>.pyx`` and the C++ files named."""
    return Extension(
        f"stowplan.{package}.{name}",
        sources=[f"{package}/{name}.pyx", *sorted(cores)],
        depends=sorted(
            path
            for pattern in (*HEADERS, f"{package}/core/*.hpp", f"{package}/*.pxi")
            for path in glob(pattern)
        ),
        include_dirs=[".", f"{package}/core", "profiler/core", numpy.get_include()],
        define_macros=MACROS,
        extra_compile_args=COMPILE_ARGS,
        extra_link_args=LINK_ARGS,
        language="c++",
    )


def packing_cores(*names: str) -> "list[str]":
    """Find the cores of these names, each in ``packing/core``."""
    return [path for name in names for path in glob(f"packing/core/{name}.cpp")]


def scheduling_cores(*names: str) -> "list[str]":
    """Find the cores of these names, each in ``scheduling/core``."""
    return [path for name in names for path in glob(f"scheduling/core/{name}.cpp")]


setup(
    ext_modules=cythonize(
        [
            extension("packing", "_solvers", packing_cores("best_fit", "greedy", "first_conflict")),
            extension("packing", "_exact", packing_cores("exact*")),
            extension("profiler", "_recorder", []),
            extension("packing", "_search", packing_cores("best_fit", "greedy", "large*", "search*")),
            extension("scheduling", "_simulator", scheduling_cores("simulator*")),
            extension(
                "scheduling", "_descent", scheduling_cores("simulator*", "descent*", "descend", "rebuild")
            ),
            extension("scheduling", "_ordering", scheduling_cores("order_*")),
            extension("allocator", "_core", glob("allocator/core/*.cpp")),
        ],
        language_level=3,
        # What Cython writes depends on NumPy's declarations, and is kept apart for each version.
        build_dir=f"build/cython/numpy-{numpy.__version__}",
        annotate=False,
    ),
)
