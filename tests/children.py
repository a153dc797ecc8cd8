"""What a program finds of children that it forks, told in words. For programs of tests."""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing.synchronize import Event

from tests.waiting import PATIENCE, hang


def told_of_children() -> str:
    """End a pool and a process as their users do, the process at once and once more when it works."""
    fork = multiprocessing.get_context("fork")
    with fork.Pool(2) as pool:
        handlers = pool.apply(_handlers)
    codes = []
    for at_once in (True, False):
        begun = fork.Event()
        child = fork.Process(target=_work, args=[begun])
        child.start()
        if not at_once:
            begun.wait(PATIENCE)
        child.terminate()
        child.join(PATIENCE)
        codes.append(child.exitcode)
        child.kill()
    return f"{handlers} {codes}"


AS_BEFORE = f"['default_int_handler', 'SIG_DFL', 'SIG_DFL'] {[-signal.SIGTERM] * 2}"
"""What is told where children have Python's own handlers, of SIGINT, SIGTERM and SIGALRM, and are ended."""


def _handlers() -> list[str]:
    found = map(signal.getsignal, (signal.SIGINT, signal.SIGTERM, signal.SIGALRM))
    return [str(getattr(each, "__name__", getattr(each, "name", each))) for each in found]


def _work(begun: Event) -> None:
    begun.set()
    hang()
