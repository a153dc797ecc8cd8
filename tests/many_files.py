"""A process with many open files: the next one that it opens has a number that `select.select` refuses."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

FIRST = 1024
"""The lowest number of a file that fits into no `fd_set`."""


@contextmanager
def many_files() -> Iterator[None]:
    """As long as this lasts, whatever is opened has a number of `FIRST` or more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(4 * FIRST, limits[1])), limits[1]))
    files = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while files[-1] < FIRST:
            files.append(os.dup(files[0]))
        yield
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
