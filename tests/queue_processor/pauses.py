"""Processes of a queue that are paused, outside of transactions that would hold up all others."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.waiting import until

LEASE = 3.0
"""Seconds that a lease lasts where a process is paused past it. What is lost by chance is done again, and once."""
SESSIONS = "sessions"
"""In place of a policy: a queue that requires sessions, and no leases."""


def states(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """What each thread of a process does; `T` is stopped."""
    for each in Path(f"/proc/{process.pid}/task").iterdir():
        yield (each / "stat").read_text().rpartition(")")[2].split()[0]


def pause(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Pause a process outside of SQLite's transactions, in which it would keep all others waiting until it goes on."""

    def outside() -> bool:
        process.send_signal(signal.SIGSTOP)
        # Each thread stops when it is next looked at.
        until(lambda: set(states(process)) == {"T"}, "threads that stand")
        try:
            for name in ("table.db", "leases.db"):
                if not (folder / name).exists():
                    continue  # the table is in Postgres, whose server ends a transaction that stands still
                with closing(sqlite3.connect(folder / name, timeout=0.2)) as connection:  # impatient: it is asked again
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            return False
        return True

    until(outside, "a process that stands outside of transactions")
