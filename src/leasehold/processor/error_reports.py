"""Errors on their way to whoever wants to hear of them.

Owns one thread that calls `on_error`, one error after another, so that a slow one delays neither renewals nor
handlers. Promises that reporting never waits, and that what was reported before the end is delivered before it.
Keeps the latest `MOST` if they come faster than they are heard.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from leasehold.errors import is_transient

logger = logging.getLogger(__name__)

OnError = Callable[[BaseException, "str | None"], object]
"""Takes an error and the partition that it is about: None for the hub, the stores, or the balancing."""

MOST = 1_000


class ErrorReports:
    """Logs errors, and hands them to `on_error` in a thread of its own."""

    def __init__(self, on_error: OnError | None) -> None:
        self._on_error = on_error
        self._changed = threading.Condition()
        self._waiting: deque[tuple[BaseException, str | None]] = deque(maxlen=MOST)
        self._ended = False
        self.thread = threading.Thread(target=self._run, name="leasehold-errors")

    def start(self) -> None:
        """Begin to deliver."""
        if self._on_error is not None:
            self.thread.start()

    def report(self, error: BaseException, partition: str | None = None) -> None:
        """Log an error and have it delivered. Never waits."""
        about = "the processor" if partition is None else f"partition {partition}"
        logger.warning(
            "%s: %s: %s", about, type(error).__name__, error, exc_info=None if is_transient(error) else error
        )
        if self._on_error is None:
            return
        with self._changed:
            self._waiting.append((error, partition))
            self._changed.notify_all()

    def close(self) -> None:
        """Deliver what has been reported, and end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self.thread.ident is not None and self.thread is not threading.current_thread():
            self.thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    return
                error, partition = self._waiting.popleft()
            assert self._on_error is not None
            try:
                self._on_error(error, partition)
            except Exception:
                logger.exception("on_error failed on %r", error)
