"""Builds the simulated device's libraries, under the names that CuPy's wheel loads: the one for ROCm, or for CUDA 12.

What the wheel wants is read from the wheel: each undefined name of its modules, with its version. A name that
`tests/device/hip` defines is taken from there; every other gets a stub that says so when it is called, and fails.
CUDA's names come on top of HIP's (`cuda_names.py`).

The folder that is built::

    lib/        libamdhip64.so.7 and the other libraries
    include/    what a kernel's source may include; simhip_device.h is compiled beforehand
    bin/        hipcc tells CuPy where the headers are; nvcc refuses
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
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from . import cuda_names

HERE = Path(__file__).resolve().parent / "hip"
CUDA = HERE.parent / "cuda"
RUNTIME = "libamdhip64.so.7"
COMPILER = "libhiprtc.so.7"
SOURCES = {
    RUNTIME: "runtime/*.cpp",
    COMPILER: "hiprtc/*.cpp",
    "libhipblas.so.3": "hipblas/*.cpp",
    "libhiprand.so.1": "hiprand/*.cpp",
}
ROCM_LIBRARIES = {  # how a library's names begin, and the status by which it says "not supported"
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
WHEELS = {"cupy-rocm-7-0": ("14.2.0", ROCM_LIBRARIES), "cupy-cuda12x": ("12.3.0", cuda_names.LIBRARIES)}
"""Builds of CuPy: the version that the tests run with, and the libraries that it loads."""

COMMON = ["-std=c++17", "-O2", "-g1", "-fPIC", "-pthread", "-Wall", "-Wextra"]
KERNEL_FLAGS = [
    *("-std=gnu++17", "-O2", "-fPIC", "-w", "-fpermissive", "-march=native"),
    *("-fno-strict-aliasing", "-ffp-contract=off", "-fvisibility=default"),
    *("-fno-semantic-interposition", "-fno-gnu-unique"),
]
"""A product and a sum are rounded each, so that a kernel computes the same bits wherever it is compiled."""


HIPCC = """#!/bin/sh
case " $* " in *" --genco "*)
    echo "simhip: hipcc is not simulated; expected a kernel without backend='nvcc'" >&2
    exit 1
esac
# CuPy asks it where the headers are.
printf '#include <...> search starts here:\\n {include}\\nEnd of search list.\\n' >&2
"""
NVCC = """#!/bin/sh
echo "simhip: nvcc is not simulated; expected a kernel without backend='nvcc'" >&2
exit 1
"""


class SetUpError(Exception):
    """Something that the simulated device needs is missing; the message says what to do."""


def cxx() -> str:
    """Return the host's compiler."""
    return os.environ.get("SIMHIP_CXX") or "g++"


def compiler_version() -> str:
    """Return what the compiler says of itself and of this processor, for which it compiles kernels."""
    command = [cxx(), "-march=native", "-E", "-v", "-x", "c++", os.devnull]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetUpError(
            f"the simulated device compiles kernels with {cxx()}: {error}; install it "
            "(Debian and Ubuntu: apt install g++) or name another in SIMHIP_CXX"
        ) from None
    return done.stderr


@dataclass(frozen=True)
class Wheel:
    """A build of CuPy: its name and version, and its modules."""

    name: str
    version: str
    modules: list[Path]

    @property
    def for_cuda(self) -> bool:
        """Whether it calls CUDA's names, and not HIP's."""
        return "cuda" in self.name


def wheel() -> Wheel:
    """Return the build of CuPy that is installed, if it is one of those that the simulated device is for."""
    for name, (version, _) in WHEELS.items():
        with contextlib.suppress(metadata.PackageNotFoundError):
            found = metadata.distribution(name)
            if found.version.partition(".")[0] == version.partition(".")[0]:
                modules = [file for file in found.files or [] if file.name.endswith(".so")]
                return Wheel(name, found.version, [Path(str(found.locate_file(file))) for file in modules])
    names = sorted(set(metadata.packages_distributions().get("cupy", [])))
    others = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    expected = " or ".join(f"{name}=={version}" for name, (version, _) in WHEELS.items())
    raise SetUpError(
        f"the simulated device is for {expected}: pip install one of them, in an environment of its own "
        f"(make device-test makes both); found {others or 'no CuPy'}"
    )


def wanted_names(found: Wheel) -> dict[str, dict[str, str]]:
    """Return, for each library, the names that the wheel's modules want of it, with their versions."""
    listing = output("nm", "-D", "--undefined-only", "--with-symbol-versions", *found.modules)
    _, libraries = WHEELS[found.name]
    wanted: dict[str, dict[str, str]] = {library: {} for library, _ in libraries.values()}
    for name, version in re.findall(r"^\s*[UwW]\s+(\w+)(?:@+(\S+))?$", listing, re.MULTILINE):
        if library := cuda_names.library_of(name, libraries):
            wanted[library][name] = version
    return wanted


def output(*command: str | Path) -> str:
    """Return what a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def defined_in(*files: Path) -> set[str]:
    """Return the names that objects or a library define."""
    listing = output("nm", "--defined-only", *files) if files else ""
    return set(re.findall(r" [TDBV] (\w+)$", listing, re.MULTILINE))


def digest(*parts: str | bytes) -> str:
    """Return a name for what was made of these parts."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()[:24]


def contents(*patterns: str, under: Path = HERE) -> list[bytes]:
    """Return the names and texts of the files that match."""
    paths = sorted({path for pattern in patterns for path in under.glob(pattern) if path.is_file()})
    return [data for path in paths for data in (str(path.relative_to(under)).encode(), path.read_bytes())]


def stubs(library: str, names: list[str]) -> str:
    """Return C for the names that a library does not simulate."""
    libraries = [*ROCM_LIBRARIES.values(), *cuda_names.LIBRARIES.values()]
    status = next(status for found, status in libraries if found == library)
    lines = [
        "#include <stdio.h>",
        "static int refuse(const char* name, int* said) {",
        f'  if ({status} && !*said) fprintf(stderr, "simhip: %s is not simulated\\n", name);',
        f"  *said = 1;\n  return {status};\n}}",
    ]
    lines += [
        f'const char* {name}(void) {{ return "not simulated"; }}'
        if re.search("Error(Name|String)$", name)
        else f'int {name}(void) {{ static int said; return refuse("{name}", &said); }}'
        for name in names
    ]
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

    def __init__(self, out: Path, flags: list[str]) -> None:
        self.out, self.flags = out, flags
        self.launcher = [found] if (found := shutil.which("ccache")) else []
        self.headers = digest(*contents("**/*.hpp", "**/*.h"))
        self.used: set[Path] = set()

    def run(self, command: list[str | Path]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SetUpError(f"{shlex.join(map(str, command))}\n{done.stderr}")

    def compiled(self, source: Path, *flags: str) -> Path:
        """Compile one file, unless that is done, and return its object."""
        command = [cxx(), *COMMON, *self.flags, f"-I{HERE}/include", f"-I{HERE}/runtime", *flags, "-c"]
        made = self.out / "objects" / f"{source.stem}-{digest(self.headers, source.read_bytes(), *command)}.o"
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            part = made.with_suffix(".part")
            self.run([*self.launcher, *command, source, "-o", part])
            part.rename(made)
        self.used.add(made)
        return made

    def library(self, name: str, wanted: dict[str, str], objects: list[Path], *links: str) -> None:
        """Link a library of the objects, of other libraries, and of stubs for what the objects do not define."""
        folder = self.out / "lib"
        folder.mkdir(exist_ok=True)
        source = self.out / "objects" / f"stubs_{name.partition('.')[0]}.c"
        source.parent.mkdir(exist_ok=True)
        missing = sorted(set(wanted) - defined_in(*objects))
        others = []
        if missing:
            source.write_text(stubs(name, missing))
            others = [self.compiled(source, "-xc", "-std=c11")]
        script = version_script(wanted, ours=name == RUNTIME)
        options: list[str | Path] = [f"-Wl,-soname,{name}", "-Wl,-rpath,$ORIGIN", f"-L{folder}"]
        if script:
            source.with_suffix(".map").write_text(script)
            options.append(f"-Wl,--version-script={source.with_suffix('.map')}")
        part = folder / f"{name}.part"
        options += [f"-l:{link}" for link in links]
        self.run([cxx(), "-shared", "-pthread", *objects, *others, "-o", part, *options, "-ldl"])
        part.rename(folder / name)

    def of_hip(self, wanted: dict[str, dict[str, str]]) -> None:
        """Compile all sources side by side, then link."""
        sources = {name: sorted(HERE.glob(pattern)) for name, pattern in SOURCES.items()}
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            objects = {name: list(workers.map(self.compiled, files)) for name, files in sources.items()}
        for name in [RUNTIME, *({*wanted, *SOURCES} - {RUNTIME})]:
            links = [RUNTIME] if name in objects and name not in (RUNTIME, COMPILER) else []
            self.library(name, wanted.get(name, {}), objects.get(name, []), *links)

    def of_cuda(self, wanted: dict[str, dict[str, str]]) -> None:
        """Link CUDA's libraries, each of its jumps and of its own file, over those of HIP."""
        self.headers = digest(self.headers, *contents("*.hpp", under=CUDA))
        for name, names in wanted.items():
            if name not in cuda_names.SHIMS:
                self.library(name, names, [])
                continue
            file, simulated, _, _ = cuda_names.SHIMS[name]
            own = self.compiled(CUDA / f"{file}.cpp")
            source = self.out / "objects" / f"jumps_{file}.s"
            hip = defined_in(self.out / "lib" / simulated)
            source.write_text(cuda_names.jumps(name, hip, defined_in(own), set(names)))
            self.library(name, names, [own, self.compiled(source)], *dict.fromkeys((simulated, RUNTIME)))

    def forget(self) -> None:
        """Delete objects that no library is made of any more."""
        for old in {*(self.out / "objects").glob("*.o")} - self.used:
            old.unlink()

    def tools(self, toolchain: str) -> None:
        """Lay down what CuPy and kernels need besides the libraries; the kernels of another toolchain go."""
        include = self.out / "include"
        shutil.copytree(
            HERE / "include", include, dirs_exist_ok=True
        )  # in place: another process may be compiling
        for name in cuda_names.HEADERS:
            (include / name).write_text('#include "simhip_device.h"\n')
        (self.out / "flags").write_text("\n".join([*KERNEL_FLAGS, *self.flags]))
        header = include / "simhip_device.h"
        part = include / "simhip_device.part"
        self.run([cxx(), *KERNEL_FLAGS, *self.flags, f"-I{include}", "-x", "c++-header", header, "-o", part])
        part.rename(f"{header}.gch")
        for name, text in {"hipcc": HIPCC.format(include=include), "nvcc": NVCC}.items():
            script = self.out / "bin" / name
            script.parent.mkdir(exist_ok=True)
            script.write_text(text)
            script.chmod(0o755)
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
    found, compiler = wheel(), compiler_version()
    toolchain = digest(compiler, found.name, found.version, *KERNEL_FLAGS, *contents("include/**/*"))
    ours = [Path(__file__).read_bytes(), Path(cuda_names.__file__).read_bytes(), *contents("*", under=CUDA)]
    state = digest(toolchain, *map(str, found.modules), *contents("**/*"), *ours)
    with locked(out):
        file = out / "state"
        if file.exists() and file.read_text() == state:
            return
        file.unlink(missing_ok=True)
        made, wanted = Build(out, ["-DSIMHIP_LANES=32"] if found.for_cuda else []), wanted_names(found)
        made.of_hip({} if found.for_cuda else wanted)
        if found.for_cuda:
            made.of_cuda(wanted)
        made.forget()
        made.tools(toolchain)
        file.write_text(state)
