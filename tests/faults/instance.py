"""One instance of a pipeline as real processes: the application's Python, its JVM, the source's process, workers.

Each is `leasehold run` in a session of its own, so that all of them can be signalled at once, and each by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests import waiting

PATIENCE = 3 * waiting.PATIENCE
"""Seconds: an instance on a busy machine may need a minute to start its Spark."""


@dataclass
class Instance:
    """One running `leasehold run`."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    expected_to_fail: bool = False
    heard: int = 0
    """How much it had printed when it was signalled last."""

    @property
    def python(self) -> psutil.Process:
        """The application's Python."""
        return psutil.Process(self.process.pid)

    @property
    def jvm(self) -> psutil.Process:
        """The application's JVM."""
        return next(child for child in self.python.children(recursive=True) if "java" in child.name())

    def java_ignores(self, signum: int) -> bool:
        """Whether a signal does nothing to the application's JVM."""
        status = Path(f"/proc/{self.jvm.pid}/status").read_text()
        [ignored] = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:")]
        return bool(ignored >> (signum - 1) & 1)

    def everything(self) -> list[psutil.Process]:
        """All processes of the application."""
        return [self.python, *self.python.children(recursive=True)]

    def kill(self) -> None:
        """SIGKILL for all of them at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> dict[str, int]:
        """Stop it as a user would; returns its account."""
        self.process.terminate()
        return self.account()

    def signal_all(self, signum: int) -> None:
        """Send a signal to all of its processes at once: SIGTERM as a service manager does, SIGINT as Ctrl-C does."""
        self.heard = len(self.said())
        os.killpg(self.process.pid, signum)

    def account(self) -> dict[str, int]:
        """Wait for a good end and return what the instance says it did."""
        assert self.process.wait(timeout=PATIENCE) == 0, self.said()
        accounts = [line for line in self.said().splitlines() if line.startswith("{")]
        told: dict[str, int] = json.loads(accounts[-1])  # PySpark's workers may have the last word, of a broken pipe
        return told

    def said(self) -> str:
        """Everything that it has printed."""
        return self.log.read_text(errors="replace")


@contextlib.contextmanager
def paused(*processes: psutil.Process) -> Iterator[None]:
    """SIGSTOP, and SIGCONT at the end of the block, which begins when all have stopped."""
    for process in processes:
        process.suspend()
    waiting.until(lambda: all(_has_stopped(process) for process in processes), "the processes to stop")
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def _has_stopped(process: psutil.Process) -> bool:
    try:
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
