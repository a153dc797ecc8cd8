"""One instance of a pipeline as real processes: the application's Python, its JVM, the source's process, workers.

Each is `leasehold run` in a session of its own, so that all of them can be signalled at once, and each by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

PATIENCE = 120.0


def until(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition of the outside world; fail with its name."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"waited {patience:g} s for {what}"
        time.sleep(0.05)


@dataclass
class Instance:
    """One running `leasehold run`."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    patience: float = PATIENCE
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

    def jvm_runs(self) -> bool:
        """Whether the application's JVM lives."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return any(
                "java" in child.name() and child.status() != psutil.STATUS_ZOMBIE
                for child in self.python.children(recursive=True)
            )
        return False

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
        assert self.process.wait(timeout=self.patience) == 0, self.said()
        accounts = [line for line in self.said().splitlines() if line.startswith("{")]
        told: dict[str, int] = json.loads(accounts[-1])  # PySpark's workers may have the last word, of a broken pipe
        return told

    def said(self) -> str:
        """Everything that it has printed."""
        return self.log.read_text(errors="replace")


@contextlib.contextmanager
def paused(*processes: psutil.Process) -> Iterator[None]:
    """SIGSTOP, and SIGCONT at the end of the block."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
