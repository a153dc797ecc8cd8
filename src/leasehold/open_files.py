"""Whether this process has used up the files that it may have open: SQLite reports that as it does a missing right.

Concurrency: any thread. What is told is of this moment: another thread may open or close files meanwhile.
"""

from __future__ import annotations

import errno
import os

_NEEDED = 4
"""How many files SQLite opens at once, and one more."""


def files_used_up() -> str:
    """What is wrong and what to do where hardly a file more can be opened; nothing where one can."""
    opened: list[int] = []
    try:
        for _ in range(_NEEDED):
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return remedy() if error.errno in (errno.EMFILE, errno.ENFILE) else ""
    finally:
        for one in opened:
            os.close(one)
    return ""


def remedy() -> str:
    """The limit of open files, and how it is raised."""
    try:
        import resource
    except ImportError:  # Windows
        return "this process has as many files open as it may: let it open more"
    most, possible = resource.getrlimit(resource.RLIMIT_NOFILE)
    up_to = "" if possible in (most, resource.RLIM_INFINITY) else f", here up to {possible}"
    return (
        f"this process has as many files open as it may, {most}: raise the limit (ulimit -n, or LimitNOFILE= of its "
        f"service{up_to}), or let fewer partitions be in one process"
    )
