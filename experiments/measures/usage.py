"""Run a command, and say what it used: CPU time, page faults, memory.

``python -I -S usage.py RESULT COMMAND...`` writes a JSON object to the file RESULT::

    {"status": 0, "cpu": 2.31, "faults": 51023, "rss": 91226112}

`cpu` is user and system time in seconds, `faults` are minor page faults, `rss` is the largest resident set in bytes:
the command's own and those of the processes that it waited for (sums of the first two, the largest of the third). This
is a small process of its own because Linux counts the memory of a process that starts a program into that program's
largest resident set.
"""

import json
import os
import sys


def of_this_process(key: str) -> int:
    """Return a value of /proc/self/status, in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        return 1024 * int(next(line for line in file if line.startswith(key)).split()[1])


def main(result: str, *command: str) -> None:
    """Run the command to its end."""
    pid = os.posix_spawnp(command[0], command, os.environ)
    _, status, used = os.wait4(pid, 0)
    found = {
        "status": os.waitstatus_to_exitcode(status),
        "cpu": used.ru_utime + used.ru_stime,
        "faults": used.ru_minflt,
        "rss": used.ru_maxrss * 1024,
    }
    with open(result, "w", encoding="utf-8") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
