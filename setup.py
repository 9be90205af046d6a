"""The compiled extensions; everything else stands in setup.cfg.

Environment variables
---------------------
STOWPLAN_DEBUG
    ``1`` asserts the cores' invariants after every mutation (slow).
STOWPLAN_BUILT
    Folder of what was compiled, by its content; ``build/extensions`` beside this file where nothing is said.
"""

import hashlib
import os
import runpy
import shutil
from glob import glob
from pathlib import Path

import Cython
import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

COMPILE_ARGS = ["-std=c++17", "-O3", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread"]
LINK_ARGS = ["-pthread"]
MACROS = [("NPY_NO_DEPRECATED_API", "NPY_1_22_API_VERSION"), ("NPY_TARGET_VERSION", "NPY_1_22_API_VERSION")]
if os.environ.get("STOWPLAN_DEBUG") == "1":
    COMPILE_ARGS += ["-O1", "-g", "-UNDEBUG"]
    MACROS += [("STOWPLAN_DEBUG", "1")]
else:
    COMPILE_ARGS += ["-g0"]  # Python's own flags ask for debug symbols, ten times the code

HERE = Path(__file__).parent
# The packages that stand outside stowplan/, which has a link to each: it is imported by its last name.
ROOMS = (HERE / "tools" / "rooms.txt").read_text().split()


def packages(room: str) -> "list[str]":
    """Find a room's packages, by their paths."""
    return sorted(path.parent.as_posix() for path in Path(room).rglob("__init__.py"))


FOLDERS = {
    ".".join(["stowplan", *Path(path).relative_to(Path(room).parent).parts]): path
    for room in ROOMS
    for path in packages(room)
}
FACE = [name for name in (path.replace("/", ".") for path in packages("stowplan")) if name not in FOLDERS]


def extension(name: str, *cores: str) -> Extension:
    """Build an extension.

    Parameters
    ----------
    name
        As imported, without ``stowplan``; its source, ``.pyx``, has that path.
    cores
        Patterns of the C++ files that it is linked with.
    """
    room = name.split(".")[0]
    headers = [path for folder in {"common", room} for path in Path(folder).rglob("*.hpp")]
    others = [*Path("common").glob("*.pxi")]  # included by their paths from here
    others += Path("packing").glob("*.pxi") if room == "scheduling" else []
    path = Path(name.replace(".", "/"))
    return Extension(
        f"stowplan.{name}",
        sources=[
            f"{path}.pyx",
            *sorted({found for pattern in cores for found in glob(pattern, recursive=True)}),
        ],
        depends=sorted({header.as_posix() for header in [*headers, *others, *path.parent.glob("*.pxi")]}),
        include_dirs=sorted({".", numpy.get_include(), *(header.parent.as_posix() for header in headers)}),
        define_macros=MACROS,
        extra_compile_args=COMPILE_ARGS,
        extra_link_args=LINK_ARGS,
        language="c++",
    )


class BuildOnce(build_ext):
    """Compile an extension once for one content: the environments of one checkout take the same file."""

    def build_extension(self, ext: Extension) -> None:
        """Copy the file that an earlier installation made of the same sources by the same options, or make it."""
        settings = [
            COMPILE_ARGS,
            MACROS,
            numpy.__version__,
            Cython.__version__,
            *map(os.environ.get, ("CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS")),
        ]
        content = hashlib.sha256(repr(settings).encode())
        # Not what Cython has written, which names files of the environment that builds.
        own = [path for path in ext.sources if not Path(path).is_relative_to("build")]
        for path in [f"{'/'.join(ext.name.split('.')[1:])}.pyx", *own, *ext.depends]:
            content.update(Path(path).read_bytes())
        made = Path(self.get_ext_fullpath(ext.name))
        kept = HERE / os.environ.get("STOWPLAN_BUILT", "build/extensions") / content.hexdigest() / made.name
        if not kept.exists():
            super().build_extension(ext)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(made, kept.with_suffix(".part"))
            kept.with_suffix(".part").replace(kept)
        made.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kept, made)  # as new: what is in place is replaced by newer files alone


PACKING, SCHEDULING = "packing/core", "scheduling/core"
EXTENSIONS = [
    extension("allocator._core", "allocator/core/**/*.cpp"),  # first, for it takes the longest
    extension("packing._solvers", f"{PACKING}/**/*.cpp"),
    extension("profiler._recorder"),
    extension("scheduling._simulator", f"{SCHEDULING}/simulator/*.cpp", f"{SCHEDULING}/descent/*.cpp"),
    extension("scheduling._ordering", f"{SCHEDULING}/order/*.cpp"),
]

make_stub = runpy.run_path("tools/stubs.py")["make_stub"]
for module in EXTENSIONS:
    make_stub(Path(module.sources[0]))

setup(
    cmdclass={"build_ext": BuildOnce},
    options={"build_ext": {"parallel": True}},  # extensions side by side, one for each core
    packages=[*FACE, *FOLDERS],
    package_dir={"stowplan": "stowplan", **FOLDERS},
    ext_modules=cythonize(
        EXTENSIONS,
        language_level=3,
        # What Cython writes depends on NumPy's declarations, and is kept apart for each version.
        build_dir=f"build/cython/numpy-{numpy.__version__}",
        annotate=False,
        compiler_directives={"annotation_typing": False},  # annotations are for the stubs
    ),
)
