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
    COMPILE_ARGS += ["-O1", "-g"]
    MACROS += [("STOWPLAN_DEBUG", "1")]


def extension(package: str, name: str, cores: "list[str]") -> Extension:
    """Build ``stowplan.<package>.<name>`` from ``<package>/<name>.pyx`` and the C++ files named."""
    return Extension(
        f"stowplan.{package}.{name}",
        sources=[f"{package}/{name}.pyx", *sorted(cores)],
        depends=sorted(glob(f"{package}/core/*.hpp") + glob(f"{package}/*.pxi")),
        include_dirs=[f"{package}/core", numpy.get_include()],
        define_macros=MACROS,
        extra_compile_args=COMPILE_ARGS,
        extra_link_args=LINK_ARGS,
        language="c++",
    )


setup(
    ext_modules=cythonize(
        [
            extension("packing", "_solvers", glob("packing/core/*.cpp")),
            extension(
                "packing",
                "_search",
                [
                    "packing/core/best_fit.cpp",
                    "packing/core/greedy.cpp",
                    *glob("packing/core/large*.cpp"),
                    *glob("packing/core/search*.cpp"),
                ],
            ),
            extension("allocator", "_core", glob("allocator/core/*.cpp")),
        ],
        language_level=3,
        annotate=False,
    ),
)
