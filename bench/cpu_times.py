"""CPU seconds of a Spark program with all it has started, and of the servers that work for it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

_LOOK = 5.0


class CpuTimes:
    """CPU seconds of a process and all below it, and of servers with theirs, by their ids.

    PySpark's daemon does not wait for its workers, so what one has taken is gone with it, and Spark ends those that
    have been idle for a minute: what was last seen of each process stays in the sum. Servers wait for their own.
    """

    def __init__(self, process: int, *servers: int) -> None:
        self._process = psutil.Process(process)
        self._servers = [psutil.Process(server) for server in servers]
        self._seen: dict[psutil.Process, float] = {}
        self._looked = 0.0

    def total(self) -> float:
        """The sum until now."""
        self._looked = time.monotonic()
        for process in (self._process, *self._process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                self._seen[process] = sum(process.cpu_times()[:2])
        return sum(self._seen.values()) + served(self._servers)

    def look(self) -> None:
        """See what is there, long before it may end, without being much of what is measured."""
        if time.monotonic() - self._looked > _LOOK:
            self.total()


def served(servers: Iterable[psutil.Process]) -> float:
    """CPU seconds of servers with all that they have started, which they wait for."""
    seconds = 0.0
    for server in servers:
        for process in (server, *server.children()):
            with suppress(psutil.NoSuchProcess):
                seconds += sum(process.cpu_times()[:4])
    return seconds
