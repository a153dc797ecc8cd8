"""Ports of this machine for the servers that tests start.

Owns which test process has which port. A port is one that the system gives to nobody who connects, so a server that was
killed gets it again; and it belongs to the process that asked until that ends, so two workers that start servers at
the same time never mean the same one, also while nothing listens there yet.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

_FIRST, _LAST = 12_000, 22_000
"""Below those that systems give to outgoing connections, with room for a Redis cluster's own traffic 10,000 above."""

_held: list[int] = []
"""The locked files: the system unlocks them when this process ends, however it ends."""


def free_port() -> int:
    """A port where nothing listens and that no other test process has, for as long as this process runs."""
    anything = random.SystemRandom()  # whatever a test has done with the common one
    while True:
        port = anything.randrange(_FIRST, _LAST)
        if _reserve(port):
            return port


def _reserve(port: int) -> bool:
    folder = Path(tempfile.gettempdir()) / f"leasehold-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    file = os.open(folder / str(port), os.O_RDWR | os.O_CREAT, 0o600)
    with contextlib.suppress(OSError), socket.socket() as probe:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        probe.bind(("127.0.0.1", port))
        _held.append(file)
        return True
    os.close(file)
    return False
