"""The threads that calls of a store run in, for tasks that await them.

Owns the threads, and the way back to the loop. Promises that a program's other work never delays a call: the loop's
executor is anybody's, and with its threads busy a lease would be waited for longer than was asked, or be renewed for
nobody. A call that has begun goes on whatever becomes of the task and the loop; the program's end waits for it.

Any loops and threads at once. A child that this process forks has threads of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any


class Threads:
    """At most this many, each begun when no other is free."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def run(self, call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Have this called, and return what becomes of it. A future: `asyncio.run` cancels all tasks."""
        loop = asyncio.get_running_loop()
        there: asyncio.Future[Any] = loop.create_future()

        def tell(here: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_settle, there, here)

        self._executor().submit(call, *arguments).add_done_callback(tell)
        return asyncio.shield(there)

    def close(self) -> None:
        """End the threads after the calls that they have. The next call begins new ones."""
        pool, self._pool = self._pool, None
        if pool is not None and pool[0] == os.getpid():
            pool[1].shutdown(wait=False)

    def _executor(self) -> ThreadPoolExecutor:
        pool = self._pool
        if pool is None or pool[0] != os.getpid():
            pool = self._pool = os.getpid(), ThreadPoolExecutor(self._most, self._name)
        return pool[1]


def _settle(there: asyncio.Future[Any], here: Future[Any]) -> None:
    if there.cancelled():
        return
    error = here.exception()
    if error is None:
        there.set_result(here.result())
    else:
        there.set_exception(error)
