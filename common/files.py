"""Write files atomically: they appear complete or not at all."""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file next to `path` for writing, and rename it to `path` when the block ends well.

    If the block raises, the temporary file is removed and the old file at `path`, if any, is untouched. Permissions are
    those that a plain ``open`` would give: the old file's, or the umask's.

    What is no regular file (a device node, a FIFO), or is this process's standard output or error (``/dev/stdout``), is
    not replaced: the bytes are written into it when the block ends well.

    Raises
    ------
    OSError
        The folder, or what stands at `path`, cannot be written.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        mode = 0o666 & ~umask
    else:
        mode = found.st_mode & 0o777
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        standard = next((number for number in (1, 2) if _is_open_as(number, found)), None)
        if standard is not None or not stat.S_ISREG(found.st_mode):
            buffer = io.BytesIO()
            yield buffer
            with _named(path), open(path if standard is None else os.dup(standard), "wb") as file:
                file.write(buffer.getvalue())
            return
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    prefix = f".{name}."
    with _named(path, os.path.join(folder, prefix)):
        handle, temporary = tempfile.mkstemp(prefix=prefix, dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            os.chmod(temporary, mode)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise


@contextmanager
def _named(path: str | os.PathLike[str], temporary: str = "") -> Iterator[None]:
    """Let errors that name no file, or one whose name begins as temporary ones do, name the caller's file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or not str(error.filename or temporary).startswith(temporary):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def _is_open_as(number: int, found: os.stat_result) -> bool:
    """Whether a file is what a descriptor of this process stands for."""
    try:
        return os.path.samestat(os.fstat(number), found)
    except OSError:  # closed
        return False


def from_here(site: str) -> str:
    """Return a call site, with the paths of files below the current folder relative to it."""
    return site.replace(f"{os.getcwd()}{os.sep}", "")
