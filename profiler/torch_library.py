"""The libraries that put PyTorch's CPU tensors under five C functions: compiled on first use, and kept.

A program in C++ fits one version of PyTorch, so the sources ship, ``torch_cpu_allocator.cpp`` and, for recorders,
``torch_operators.cpp``. They are compiled against the PyTorch that is installed: some seconds, once, without ninja or
setuptools. A library is kept as ::

    $XDG_CACHE_HOME or ~/.cache / stowplan / torch-VERSION-DIGEST / torch_cpu_allocator.so

DIGEST is of all that it depends on: source, options, PyTorch's version and place. With what is kept, no compiler is
needed. It gets its name by a rename, so that processes may compile at the same time; one that cannot be loaded
is compiled again. Where nothing can be kept there, it is compiled in a temporary folder, by each process. Once loaded,
it stays for the life of the process.

PyTorch is imported when a library is requested.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from ..common.errors import MissingDependencyError, PoolError

HERE = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
SHOWN = 2_000
"""Characters of a compiler's complaint that an error shows."""

_lock = threading.Lock()
_loaded: dict[Path, TorchLibrary] = {}
L = TypeVar("L", bound="TorchLibrary")


class TorchLibrary:
    """A loaded library, with an allocator of CPU tensors in it: one of each kind in a process.

    Parameters
    ----------
    path
        The shared library.

    Raises
    ------
    OSError
        It cannot be loaded.
    """

    SOURCES: ClassVar[tuple[str, ...]] = ("torch_cpu_allocator.cpp",)
    LINKED: ClassVar[tuple[str, ...]] = ("c10",)

    def __init__(self, path: Path) -> None:
        self._library = ctypes.PyDLL(str(path))  # holds the GIL: one thread at a time changes the allocator
        self._library.stow_torch_install.argtypes = [ctypes.c_void_p]

    def install(self, table_address: int) -> None:
        """Let PyTorch ask five C functions for the memory of CPU tensors; does nothing if it does.

        Parameters
        ----------
        table_address
            The address of a ``struct Upstream`` (common/core/host_memory.hpp) that lives as long as the process. Its
            ``malloc`` and ``calloc`` return multiples of 64, or null, and are called by any thread, with or without
            the GIL; its ``free`` gets the size SIZE_MAX, which stands for an unknown one. It is asked to free its
            blocks, and where a storage of its making grows, after `uninstall`, too.

        Raises
        ------
        PoolError
            This process has installed another struct before, or an allocator of a higher priority is in place.
        """
        answer = self._library.stow_torch_install(table_address)
        if answer == 1:
            raise PoolError(
                "PyTorch's CPU tensors have another table of functions; expected one in a process"
            )
        if answer == 2:
            raise PoolError(
                "PyTorch keeps its CPU allocator, which another library has installed at a higher priority"
            )

    def uninstall(self) -> bool:
        """Put the former allocator back; false, and nothing done, if PyTorch asks another one by now."""
        return bool(self._library.stow_torch_uninstall())

    @property
    def installed(self) -> bool:
        """Whether PyTorch requests memory here."""
        return bool(self._library.stow_torch_installed())


class TorchRecordingLibrary(TorchLibrary):
    """The same with an allocator of its own, which may stand above the other one, and with PyTorch's operators."""

    SOURCES = (*TorchLibrary.SOURCES, "torch_operators.cpp")
    LINKED = ("torch_cpu", *TorchLibrary.LINKED)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._library.stow_torch_listen.argtypes = [ctypes.c_void_p]

    def listen(self, listener_address: int) -> None:
        """Have C functions called when operators begin and end, on any thread; does nothing if they are.

        Parameters
        ----------
        listener_address
            The address of a ``struct Listener`` (torch_operators.cpp), whose functions live as long as the process.
        """
        self._library.stow_torch_listen(listener_address)

    def ignore(self) -> None:
        """Have nothing called any more, except at the end of operators that run."""
        self._library.stow_torch_ignore()


class Torch(NamedTuple):
    """What is compiled against.

    Attributes
    ----------
    version
        With the revision of the sources, as builds of one version differ.
    folder
        The package's, with ``include`` and ``lib`` in it.
    new_abi
        Whether it was compiled with C++11's strings.
    """

    version: str
    folder: Path
    new_abi: bool

    def options(self, kind: type[TorchLibrary]) -> list[str]:
        """Return what a compiler is told to make a library; ``-o`` and a path are to follow."""
        include, lib = self.folder / "include", self.folder / "lib"
        return [
            *FLAGS,
            f"-D_GLIBCXX_USE_CXX11_ABI={int(self.new_abi)}",
            *("-isystem", str(include)),
            *(str(HERE / source) for source in kind.SOURCES),
            *(f"-L{lib}", *(f"-l{name}" for name in kind.LINKED), f"-Wl,-rpath,{lib}"),
        ]


def library() -> TorchLibrary:
    """Return the library for pools, compiled if need be.

    Raises
    ------
    MissingDependencyError
        PyTorch is not installed, there is no compiler of C++, or it refuses the source.
    """
    return _library(TorchLibrary)


def recording_library() -> TorchRecordingLibrary:
    """Return the library for recorders; as `library`."""
    return _library(TorchRecordingLibrary)


def _library(kind: type[L]) -> L:
    torch = installed_torch()
    folder = cache_folder() / f"torch-{torch.version.split(' ')[0]}-{digest(torch, kind)}"
    path = folder / f"{Path(kind.SOURCES[-1]).stem}.so"
    with _lock:
        known = _loaded.get(path)
        if isinstance(known, kind):
            return known
        loaded = _kept(path, torch, kind) or _made_apart(torch, kind)
        _loaded[path] = loaded
        return loaded


def installed_torch() -> Torch:
    """Return the PyTorch that is installed, and import it.

    Raises
    ------
    MissingDependencyError
        There is none.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            f"PyTorch cannot be imported ({error}); expected a build of it: pip install '.[torch]' in stowplan's clone"
        ) from error
    version = f"{torch.__version__} {getattr(torch.version, 'git_version', '')}"
    return Torch(version, Path(torch.__file__).resolve().parent, torch.compiled_with_cxx11_abi())


def compiler() -> list[str]:
    """Return the command of the C++ compiler: ``$CXX``, or the first that there is.

    Raises
    ------
    MissingDependencyError
        There is none.
    """
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen and shutil.which(chosen[0]):
        return chosen
    found = [name for name in COMPILERS if not chosen and shutil.which(name)]
    if found:
        return found[:1]
    looked_for = f"$CXX, which is {chosen[0]}" if chosen else ", ".join(COMPILERS)
    raise MissingDependencyError(
        f"no C++ compiler found ({looked_for}); expected one of C++20, which compiles a small library for"
        " PyTorch's tensors on the first use: apt install g++, or set $CXX"
    )


def cache_folder() -> Path:
    """Return the folder in which this user's libraries are kept. It need not exist; it is relative if there is none."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return Path(named if os.path.isabs(named) else os.path.expanduser("~/.cache")) / "stowplan"


def digest(torch: Torch, kind: type[TorchLibrary]) -> str:
    """Return 16 hexadecimal digits of all that a library depends on."""
    hashed = hashlib.sha256("\0".join([torch.version, *torch.options(kind)]).encode())
    for source in kind.SOURCES:
        hashed.update((HERE / source).read_bytes())
    return hashed.hexdigest()[:16]


def _kept(path: Path, torch: Torch, kind: type[L]) -> L | None:
    """Load the library that is kept, made again if it is absent or broken; None where it cannot be kept."""
    if path.is_file():
        with suppress(OSError):
            return kind(path)
    if not path.is_absolute():
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = _compiled(torch, kind, Path(folder))
            os.replace(made, path)
        return kind(path)
    except OSError:
        return None


def _made_apart(torch: Torch, kind: type[L]) -> L:
    with tempfile.TemporaryDirectory(prefix="stowplan-") as folder:
        return kind(_compiled(torch, kind, Path(folder)))  # stays loaded when its file is gone


def _compiled(torch: Torch, kind: type[TorchLibrary], folder: Path) -> Path:
    path = folder / "library.so"
    command = [*compiler(), *torch.options(kind), "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise MissingDependencyError(
            f"the library for PyTorch's tensors cannot be compiled: {shlex.join(command)} ended with"
            f" {done.returncode}; expected a C++20 compiler that fits PyTorch {torch.version}; its last words:\n"
            f"{done.stderr[-SHOWN:].strip()}"
        )
    return path
