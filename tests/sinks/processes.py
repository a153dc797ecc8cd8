"""Processes of their own that do something to a table, and are killed and stopped in the midst of it.

Each is forked from one that has imported what writers need and opened nothing, so that it starts in no time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

from tests.waiting import PATIENCE

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.sinks.sqlite_writer", "tests.sinks.postgres_writer"])


def started(act: Callable[..., object], *given: object) -> ForkServerProcess:
    """A process that does this. It ends with the tests at the latest."""
    process = FORKED.Process(target=act, args=given, daemon=True)
    process.start()
    return process


def exit_code(process: ForkServerProcess) -> int:
    """How it has ended, once it has."""
    process.join(PATIENCE)
    assert process.exitcode is not None
    return process.exitcode


def killed_in(act: Callable[..., object], *given: object) -> bool:
    """Whether a process is killed that does this."""
    return exit_code(started(act, *given)) == -signal.SIGKILL


def behind(owner: Any, name: str, act: Callable[[], None]) -> None:
    """Act once the function of this owner and name has returned."""
    before = getattr(owner, name)

    def then(*given: Any, **named: Any) -> Any:
        result = before(*given, **named)
        act()
        return result

    setattr(owner, name, then)


def die() -> None:
    """End at once, as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)
