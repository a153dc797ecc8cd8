"""`leasehold serve` as a process, which Ctrl-C has to end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import PATIENCE


@contextmanager
def serving(*arguments: str, warning: str = "") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "error", "-m", "leasehold.cli.app", "serve", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert errors.endswith("leasehold: interrupted\n")
    assert warning in errors
    assert bool(warning) == (errors != "leasehold: interrupted\n")
