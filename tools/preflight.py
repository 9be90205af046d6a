"""Say what is missing before the build fails on it: a Python of 3.10, venv, its headers, a C++17 compiler.

Run by the Makefile with the interpreter that will build. Standard library only. Exit status 1 and one line for
each thing missing, with what to install; silent when all is there.
"""

import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile

PROGRAM = "#include <optional>\nint main() { return *std::optional<int>{0}; }\n"  # <optional>: new in C++17


def python(version: "tuple[int, ...]" = sys.version_info[:3]) -> "str | None":
    """Return what is wrong with the version of Python, or None."""
    if version >= (3, 10):
        return None
    found = ".".join(map(str, version))
    return f"Python 3.10 or later; {sys.executable} is {found} (choose another with make PYTHON=python3.12)"


def venv_module() -> "str | None":
    """Return what is wrong with the modules that make a virtual environment, or None."""
    for name in ("venv", "ensurepip"):  # Debian ships venv without ensurepip, and then venv fails half-way
        if importlib.util.find_spec(name) is None:
            return f"the Python module {name} (Debian and Ubuntu: apt install python3-venv)"
    return None


def headers(include: "str | None" = None) -> "str | None":
    """Return what is wrong with Python's C headers, or None."""
    header = os.path.join(include or sysconfig.get_path("include"), "Python.h")
    if os.path.isfile(header):
        return None
    return f"Python's C headers: {header} (Debian and Ubuntu: apt install python3-dev; Fedora: python3-devel)"


def compiler(command: "str | None" = None) -> "str | None":
    """Return what is wrong with the C++ compiler that setuptools will call, or None."""
    command = command or os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "c++"
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "probe.cpp")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        call = [*shlex.split(command), "-std=c++17", source, "-o", os.path.join(folder, "probe")]
        try:
            done = subprocess.run(call, capture_output=True, text=True, check=False)
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            if done.returncode == 0:
                return None
            lines = (done.stderr or done.stdout).strip().splitlines()
            reason = lines[0] if lines else f"exit status {done.returncode}"
    return (
        f"a C++17 compiler: {command}: {reason} (Debian and Ubuntu: apt install g++; Fedora: gcc-c++; "
        "or name one in CXX)"
    )


def main() -> int:
    """Print what is missing; return the exit status."""
    missing = [problem for problem in (python(), venv_module(), headers(), compiler()) if problem]
    for problem in missing:
        print(f"stowplan: missing: {problem}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
