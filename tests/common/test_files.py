"""What is written: regular files are replaced whole; into anything else the bytes go."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stowplan.common.files import atomic_write

from ..children import printed, stowplan

PROBLEM = "id,lower,upper,size\n0,0,1,5\n"
PACKED = "id,lower,upper,size,offset\n0,0,1,5,0\n"


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[int]:
    """Make a FIFO, ``pipe``; return a descriptor to read it by."""
    os.mkfifo(tmp_path / "pipe")
    descriptor = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def test_a_command_writes_into_a_pipe(tmp_path: Path, pipe: int) -> None:
    (tmp_path / "p.csv").write_text(PROBLEM)
    assert stowplan("pack", "p.csv", "-o", "pipe", folder=tmp_path).returncode == 0
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert os.read(pipe, 1000) == PACKED.encode()
    (tmp_path / "program.py").write_text("")
    assert stowplan("run", "--stats", "pipe", "program.py", folder=tmp_path).returncode == 0
    assert os.read(pipe, 10_000).startswith(b'{"numpy": {"requests": ')


def test_what_fails_writes_nothing_into_a_pipe(tmp_path: Path, pipe: int) -> None:
    with suppress(RuntimeError), atomic_write(tmp_path / "pipe") as file:
        file.write(b"half")
        raise RuntimeError
    with pytest.raises(BlockingIOError):
        os.read(pipe, 1)


@pytest.mark.parametrize("link", [False, True])
def test_a_device_node_stays(tmp_path: Path, link: bool) -> None:
    node = path = tmp_path / "null"
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))  # one of our own: a fault may destroy it
    except PermissionError:
        pytest.skip("device nodes cannot be made; expected the capability CAP_MKNOD")
    if link:
        path = tmp_path / "link"
        path.symlink_to(node)
    with atomic_write(path) as file:
        file.write(b"lost")
    assert stat.S_ISCHR(os.stat(node).st_mode)


def test_a_file_that_takes_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(PROBLEM)
    done = stowplan("pack", "p.csv", "-o", "/dev/full", folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, "Error: /dev/full: no space left on device\n")


def test_a_file_that_becomes_too_large_is_named(tmp_path: Path) -> None:
    limited = 'ulimit -f 8 && exec "$@"'
    program = (
        "from stowplan.common.files import *\nwith atomic_write('out') as file: file.write(bytes(1 << 20))"
    )
    words = ["bash", "-c", limited, "bash", sys.executable, "-c", program]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.endswith("OSError: [Errno 27] File too large: 'out'\n")
    assert list(tmp_path.iterdir()) == []


def test_errors_of_others_keep_their_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="other"), atomic_write(tmp_path / "out"):
        os.stat(tmp_path / "other")


def test_standard_output_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(PROBLEM)
    done = stowplan("pack", "p.csv", "-o", "/dev/stdout", folder=tmp_path)
    assert done.stdout.startswith(PACKED), done.stderr


@pytest.mark.parametrize("name", ["/dev/stdout", "out"])
def test_standard_output_that_is_a_file_keeps_what_else_is_printed(tmp_path: Path, name: str) -> None:
    program = f"""
import os
from stowplan.common.files import atomic_write

os.dup2(os.open("out", os.O_CREAT | os.O_WRONLY), 1)
print("before", flush=True)
with atomic_write({name!r}) as file:
    file.write(b"written\\n")
print("after")
"""
    printed("-c", program, folder=tmp_path)
    assert (tmp_path / "out").read_text() == "before\nwritten\nafter\n"
