"""The memory that the host lets this process use.

::

    /proc/self/cgroup       0::/jobs/a
    /proc/self/mountinfo    ... /jobs /sys/fs/cgroup ... - cgroup2 ...
    control groups          /sys/fs/cgroup/a and /sys/fs/cgroup: the process's own, and all above it that are mounted
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path, PurePosixPath

FILES = {
    "cgroup2": ("memory.max", "memory.current"),
    "cgroup": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""Where a control group of each version has its limit and its usage."""


def host_memory(process: str | os.PathLike[str] = "/proc/self") -> int:
    """Return the bytes of memory that a process may use: the machine's, or the least of its control groups' limits."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *(limit for limit, _ in control_groups(process))])


def control_groups(process: str | os.PathLike[str] = "/proc/self") -> list[tuple[int, int]]:
    """Return the limit and the usage, in bytes, of each control group that binds the memory of a process.

    Parameters
    ----------
    process
        Its folder in ``/proc``.
    """
    own, found = {}, []
    with suppress(OSError):
        for line in Path(process, "cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if not controllers or "memory" in controllers.split(","):
                own["cgroup" if controllers else "cgroup2"] = group
        for line in Path(process, "mountinfo").read_text().splitlines():
            mount, _, source = line.partition(" - ")
            kind, (root, folder) = source.split()[0], mount.split()[3:5]
            if kind not in own or not PurePosixPath(own[kind]).is_relative_to(root):
                continue
            below = PurePosixPath(own[kind]).relative_to(root)
            for part in (below, *below.parents):
                # Without a limit ("max"), or in a mount of other controllers, there is nothing to read.
                with suppress(OSError, ValueError):
                    limit, usage = (int(Path(folder, part, name).read_text()) for name in FILES[kind])
                    found.append((limit, usage))
    return found
