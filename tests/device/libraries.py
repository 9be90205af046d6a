"""Builds the simulated device's libraries, under the names that CuPy's wheel for ROCm loads.

What the wheel wants is read from the wheel: each undefined name of its modules, with its version. A name that
`tests/device/hip` defines is taken from there; every other gets a stub that says so when it is called, and fails.

The folder that is built::

    lib/        libamdhip64.so.7 and the other libraries
    include/    what a kernel's source may include; simhip_device.h is compiled beforehand
    bin/hipcc   tells CuPy where the headers are
    flags       of the host's compiler, for kernels
    toolchain   a digest of the compiler, CuPy and the headers: a part of each kernel's name
    kernels/    what was compiled at run time, CuPy's own cache in it; emptied when the toolchain changes

Each object is made again when its source, a header of ours or the command has changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent / "hip"
WHEEL = "cupy-rocm-7-0"
RUNTIME = "libamdhip64.so.7"
COMPILER = "libhiprtc.so.7"
SOURCES = {
    RUNTIME: "runtime/*.cpp",
    COMPILER: "hiprtc/*.cpp",
    "libhipblas.so.3": "hipblas/*.cpp",
    "libhiprand.so.1": "hiprand/*.cpp",
}
LIBRARIES = {  # how a library's names begin, and the status by which it says "not supported"
    "hip": (RUNTIME, 801),
    "__hip": (RUNTIME, 801),
    "hipblas": ("libhipblas.so.3", 7),
    "hiprand": ("libhiprand.so.1", 1000),
    "hipsparse": ("libhipsparse.so.4", 10),
    "hipfft": ("libhipfft.so.0", 16),
    "rocfft_": ("librocfft.so.0", 1),
    "rocblas_": ("librocblas.so.5", 2),
    "rocsolver_": ("librocsolver.so.0", 2),
    "roctx": ("libroctx64.so.4", 0),  # marks for a profiler, which nothing has to happen for
    "roctracer_": ("libroctracer64.so.4", 0),
}
COMMON = ["-std=c++17", "-O2", "-g1", "-fPIC", "-pthread", "-Wall", "-Wextra"]
KERNEL_FLAGS = [
    *("-std=gnu++17", "-O2", "-fPIC", "-w", "-fpermissive", "-march=native"),
    *("-fno-strict-aliasing", "-ffp-contract=off", "-fvisibility=default"),
    *("-fno-semantic-interposition", "-fno-gnu-unique"),
]
"""A product and a sum are rounded each, so that a kernel computes the same bits wherever it is compiled."""


class SetUpError(Exception):
    """Something that the simulated device needs is missing; the message says what to do."""


def cxx() -> list[str]:
    """Return the host's compiler as a command."""
    return shlex.split(os.environ.get("SIMHIP_CXX", "")) or ["g++"]


def compiler_version() -> str:
    """Return what the compiler says of itself and of this processor, for which it compiles kernels."""
    command = [*cxx(), "-march=native", "-E", "-v", "-x", "c++", os.devnull]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetUpError(
            f"the simulated device compiles kernels with {shlex.join(cxx())}: {error}; install it "
            "(Debian and Ubuntu: apt install g++) or name another in SIMHIP_CXX"
        ) from None
    return done.stderr


def wheel() -> tuple[str, list[Path]]:
    """Return the version of CuPy's wheel for ROCm, and its modules."""
    try:
        found = metadata.distribution(WHEEL)
    except metadata.PackageNotFoundError:
        others = sorted(
            f"{name} {metadata.version(name)}"
            for name in {name for names in metadata.packages_distributions().get("cupy", []) for name in [names]}
        )
        raise SetUpError(
            f"the simulated device is for CuPy's wheel for ROCm 7: pip install {WHEEL}==14.2.0, in an environment "
            f"of its own (make device-test makes one); found {', '.join(others) or 'no CuPy'}"
        ) from None
    modules = [Path(str(found.locate_file(file))) for file in found.files or [] if file.name.endswith(".so")]
    return found.version, modules


def wanted_names(modules: list[Path]) -> dict[str, dict[str, str]]:
    """Return, for each library, the names that the wheel's modules want of it, with their versions."""
    listing = subprocess.run(
        ["nm", "-D", "--undefined-only", "--with-symbol-versions", *modules],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    wanted: dict[str, dict[str, str]] = {library: {} for library, _ in LIBRARIES.values()}
    for name, version in re.findall(r"^\s*[UwW]\s+(\w+)(?:@+(\S+))?$", listing, re.MULTILINE):
        prefixes = [prefix for prefix in LIBRARIES if name.startswith(prefix)]
        if prefixes:
            wanted[LIBRARIES[max(prefixes, key=len)][0]][name] = version
    return wanted


def digest(*parts: str | bytes) -> str:
    """Return a name for what was made of these parts."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()[:24]


def contents(*patterns: str) -> list[bytes]:
    """Return the names and texts of the files under `hip` that match."""
    paths = sorted({path for pattern in patterns for path in HERE.glob(pattern) if path.is_file()})
    return [data for path in paths for data in (str(path.relative_to(HERE)).encode(), path.read_bytes())]


def stubs(library: str, names: list[str]) -> str:
    """Return C for the names that a library does not simulate."""
    status = next(status for found, status in LIBRARIES.values() if found == library)
    lines = [
        "#include <stdio.h>",
        "static int refuse(const char* name, int* said) {",
        f'  if ({status} && !*said) fprintf(stderr, "simhip: %s is not simulated\\n", name);',
        f"  *said = 1;\n  return {status};\n}}",
    ]
    lines += [f'int {name}(void) {{ static int said; return refuse("{name}", &said); }}' for name in names]
    return "\n".join([*lines, ""])


def version_script(wanted: dict[str, str], ours: bool) -> str:
    """Return the linker's list of names by their versions, with those that our libraries call of each other."""
    versions: dict[str, list[str]] = {}
    for name, version in sorted(wanted.items()):
        if version:
            versions.setdefault(version, []).append(name)
    lines = [f"{version} {{ global: {'; '.join(names)}; }};" for version, names in versions.items()]
    if ours:
        lines.append("SIMHIP { global: simhip_*; _Z*simhip_enqueue*; hip*; local: *; };")
    return "\n".join(lines) if versions else ""


class Build:
    """One build into a folder."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.launcher = [found] if (found := shutil.which("ccache")) else []
        self.headers = digest(*contents("**/*.hpp", "**/*.h"))

    def run(self, command: list[str | Path]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SetUpError(f"{shlex.join(map(str, command))}\n{done.stderr}")

    def compiled(self, source: Path, *flags: str) -> Path:
        """Compile one file, unless that is done, and return its object."""
        command = [*cxx(), *COMMON, f"-I{HERE}/include", f"-I{HERE}/runtime", *flags, "-c"]
        made = self.out / "objects" / f"{source.stem}-{digest(self.headers, source.read_bytes(), *command)}.o"
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            part = made.with_suffix(".part")
            self.run([*self.launcher, *command, source, "-o", part])
            part.rename(made)
        return made

    def library(self, name: str, wanted: dict[str, str], objects: list[Path]) -> None:
        """Link a library of the objects, and of stubs for what they do not define."""
        folder = self.out / "lib"
        folder.mkdir(exist_ok=True)
        defined: set[str] = set()
        if objects:
            listing = subprocess.run(["nm", "--defined-only", *objects], capture_output=True, text=True, check=True)
            defined = set(re.findall(r" [TDBV] (\w+)$", listing.stdout, re.MULTILINE))
        source = self.out / "objects" / f"stubs_{name.partition('.')[0]}.c"
        source.parent.mkdir(exist_ok=True)
        missing = sorted(set(wanted) - defined)
        others = []
        if missing:
            source.write_text(stubs(name, missing))
            others = [self.compiled(source, "-xc", "-std=c11")]
        script = version_script(wanted, ours=name == RUNTIME)
        options: list[str | Path] = [f"-Wl,-soname,{name}", "-Wl,-rpath,$ORIGIN", f"-L{folder}"]
        if script:
            source.with_suffix(".map").write_text(script)
            options.append(f"-Wl,--version-script={source.with_suffix('.map')}")
        if objects and name not in (RUNTIME, COMPILER):
            options.append(f"-l:{RUNTIME}")
        part = folder / f"{name}.part"
        self.run([*cxx(), "-shared", "-pthread", *objects, *others, "-o", part, *options, "-ldl"])
        part.rename(folder / name)

    def libraries(self, wanted: dict[str, dict[str, str]]) -> None:
        """Compile all sources side by side, then link."""
        sources = {name: sorted(HERE.glob(pattern)) for name, pattern in SOURCES.items()}
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            objects = {name: list(workers.map(self.compiled, files)) for name, files in sources.items()}
        for name in [RUNTIME, *({*wanted, *SOURCES} - {RUNTIME})]:
            self.library(name, wanted.get(name, {}), objects.get(name, []))

    def tools(self, toolchain: str) -> None:
        """Lay down what CuPy and kernels need besides the libraries; the kernels of another toolchain go."""
        include = self.out / "include"
        shutil.copytree(HERE / "include", include, dirs_exist_ok=True)  # in place: another process may be compiling
        (self.out / "flags").write_text("\n".join(KERNEL_FLAGS))
        header = include / "simhip_device.h"
        part = include / "simhip_device.part"
        self.run([*cxx(), *KERNEL_FLAGS, f"-I{include}", "-x", "c++-header", header, "-o", part])
        part.rename(f"{header}.gch")
        hipcc = self.out / "bin" / "hipcc"
        hipcc.parent.mkdir(exist_ok=True)
        said = f"#include <...> search starts here:\\n {include}\\nEnd of search list.\\n"
        hipcc.write_text(f"#!/bin/sh\n# CuPy asks it where the headers are.\nprintf '{said}' >&2\n")
        hipcc.chmod(0o755)
        file = self.out / "toolchain"
        if not file.exists() or file.read_text() != toolchain:
            shutil.rmtree(self.out / "kernels", ignore_errors=True)
            file.write_text(toolchain)
        (self.out / "kernels").mkdir(exist_ok=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time build."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(out: Path) -> None:
    """Build the simulated device into a folder, unless it is there as the sources are now."""
    version, modules = wheel()
    compiler = compiler_version()
    toolchain = digest(compiler, version, *KERNEL_FLAGS, *contents("include/**/*"))
    state = digest(toolchain, *map(str, modules), *contents("**/*"), Path(__file__).read_bytes())
    with locked(out):
        file = out / "state"
        if file.exists() and file.read_text() == state:
            return
        file.unlink(missing_ok=True)
        made = Build(out)
        made.libraries(wanted_names(modules))
        made.tools(toolchain)
        file.write_text(state)
