"""A thread that is given one thing after the other to do.

Owns the thread, in which a loop evaluates or reads batches, and what it has still to do. A daemon: what hangs in it
never keeps the process from ending. Whatever is raised there, SystemExit included, comes out of the future and ends
nothing else.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """Runs functions in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._todo: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run a function after what was given before. A future that is cancelled in time is not begun."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - SystemExit of a user's function too: whoever waits is told
                future.set_exception(error)

        self._todo.put(run)
        return future

    def _run(self) -> None:
        while True:
            self._todo.get()()
