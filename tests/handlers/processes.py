"""Processes that keep a table: started from a program of this folder, paused where they hold up nobody, and ended."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from tests.handlers.batches import rows
from tests.repository import ROOT
from tests.waiting import PATIENCE, until


def started(stack: ExitStack, command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
    """A process without input, which is killed at the end of the block."""
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, **settings)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


class Processes:
    """Processes that keep the table, ended with the test."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack, self._folder = stack, folder

    def start(self, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.handlers.handler_program", str(self._folder), name]
        return started(self._stack, command)

    def applied(self) -> int:
        return sum(row[1] for row in rows(self._folder))

    def pause(self, process: subprocess.Popen[bytes]) -> None:
        """Stop it, and not in a transaction of SQLite, which would stop everybody."""

        def stopped() -> bool:
            os.kill(process.pid, signal.SIGSTOP)
            if all(map(writable, self._folder.glob("*.db"))):
                return True
            os.kill(process.pid, signal.SIGCONT)
            return False

        until(stopped, "a process that stands outside of transactions")


def writable(file: Path) -> bool:
    soon = 0.2  # impatient: it is asked again
    with closing(sqlite3.connect(file, timeout=soon, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
    return True


def expire_leases(file: Path, holder: str | None = None) -> None:
    """Age what a holder, or everybody, has in a SQLite store of leases, as if it had been paused for longer than they
    last."""
    with closing(sqlite3.connect(file, timeout=PATIENCE)) as connection, connection:
        connection.execute("UPDATE leasehold_session SET until = 0 WHERE owner = coalesce(?, owner)", (holder,))
