"""A process with many open files: the next has a number that `select.select` refuses, or cannot be opened at all."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

FIRST = 1024
"""The lowest number of a file that fits into no `fd_set`."""


@contextmanager
def many_files() -> Iterator[None]:
    """As long as this lasts, whatever is opened has a number of `FIRST` or more."""
    gc.collect()  # what earlier tests have left would give up lower numbers in the meantime
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


@contextmanager
def no_more_files() -> Iterator[None]:
    """As long as this lasts, nothing more can be opened: the limit is reached."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = [os.open(os.devnull, os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files[0] + 1, limits[1]))
        with suppress(OSError):
            while True:
                files.append(os.dup(files[0]))
        yield
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
