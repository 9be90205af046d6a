"""A store of plans in a directory: for several processes at once, and for those that run later.

::

    DIR/<key>.plan          one placement; appears whole, by renaming, or not at all
    DIR/.<key>.<random>     being written; what a killed process has left is removed after an hour

There is no lock, and so none that a dead process could leave behind. Two processes that keep the same key write the
same twice, and the later one stands. A file that was torn all the same (the machine lost power) is refused by its
digest, like any foreign one, and written again. Files that have not been used for the longest go when all together
exceed `limit`; a process that reads one meanwhile reads it to its end. Processes on several machines may share a
directory of a network's file system, if that renames atomically (NFS does).

`find` is one open and one read, and once an hour a change of the file's time; `keep` looks at all files.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ..errors import PoolError
from .store import DamagedError, PlanStore

SUFFIX = ".plan"
LIMIT = 256 << 20
"""Bytes of all files together."""

STALE = 3600.0
"""Seconds after which a file's use is noted again, and after which one that is being written is taken for left."""

_PLAN = re.compile(r"[0-9a-f]{64}" + re.escape(SUFFIX))
_BEING_WRITTEN = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{16}")


class Kept(NamedTuple):
    """A file of the store: its key, path, size in bytes, and when it was last used (seconds since the epoch)."""

    key: str
    path: str
    size: int
    used: float


class DirectoryStore(PlanStore):
    """Plans in the files of a directory.

    Parameters
    ----------
    path
        The directory; made when the first plan is kept.
    limit
        Bytes that all its plans may take together, 1 or more.

    Raises
    ------
    PoolError
        The path is something else than a directory; the limit is not positive, or not an integer.
    """

    def __init__(self, path: str | os.PathLike[str], limit: int = LIMIT) -> None:
        self.path = os.path.abspath(path)
        if os.path.exists(self.path) and not os.path.isdir(self.path):
            raise PoolError(
                f"plans is {os.fspath(path)!r}, which is a file; expected the path of a directory"
            )
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise PoolError(f"limit is {limit!r}; expected a number of bytes, 1 or more")
        self._limit = limit

    def where(self, key: str) -> str:
        """Return the file's path."""
        return os.path.join(self.path, key + SUFFIX)

    def find(self, key: str, *, used: bool = True) -> bytes | None:
        """Return a file's bytes, and note its use, if it is one.

        Raises
        ------
        DamagedError
            It is no plain file, or too large.
        OSError
            It cannot be read.
        """
        path = self.where(key)
        try:
            # Does not wait for the other end of a pipe that goes by this name.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with open(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise DamagedError("no plain file")
            if found.st_size > self._limit:
                raise DamagedError(f"{found.st_size} bytes, more than all plans may have together")
            data = file.read()
        if used and time.time() - found.st_mtime > STALE:
            with suppress(OSError):  # a directory that others have written, perhaps
                os.utime(path)
        return data

    def keep(self, key: str, data: bytes) -> None:
        """Write a file, whole or not at all, and make room for it.

        Raises
        ------
        OSError
            It cannot be written; nothing is left of it.
        """
        if len(data) > self._limit:
            return
        os.makedirs(self.path, exist_ok=True)
        temporary = os.path.join(self.path, f".{key}.{secrets.token_hex(8)}")
        # Not tempfile's 0600: what others may read, the umask says.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with open(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, self.where(key))
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        self._make_room(key)

    def kept(self) -> list[Kept]:
        """Return the store's files, the last used first. O(n log n)."""
        found = [
            Kept(entry.name.removesuffix(SUFFIX), entry.path, status.st_size, status.st_mtime)
            for entry, status in self._files(_PLAN)
        ]
        return sorted(found, key=lambda file: (-file.used, file.key))

    def remove(self, key: str) -> None:
        """Remove a file; a process that has it open reads on.

        Raises
        ------
        OSError
            There is none, or it cannot be removed.
        """
        os.unlink(self.where(key))

    def _make_room(self, last: str) -> None:
        """Remove what is beyond the limit, the last used at the end, and what dead processes have left unfinished."""
        for entry, status in self._files(_BEING_WRITTEN):
            if time.time() - status.st_mtime > STALE:
                with suppress(OSError):
                    os.unlink(entry.path)
        left = self._limit
        for file in sorted(self.kept(), key=lambda file: file.key != last):
            left -= file.size
            if left < 0:
                with suppress(OSError):  # another process was faster
                    os.unlink(file.path)

    def _files(self, name: re.Pattern[str]) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
        """Yield the plain files of such names; nothing where there is no directory."""
        try:
            entries = os.scandir(self.path)
        except FileNotFoundError:
            return
        with entries:
            for entry in entries:
                if not name.fullmatch(entry.name):
                    continue
                with suppress(FileNotFoundError):  # gone in the meantime
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield entry, status
