"""Errors on their way to whoever wants to hear of them.

Owns one thread that calls `on_error`, one error after another, so that a slow one delays neither renewals nor
handlers. Promises that reporting never waits, and that what was reported before the end is delivered before it.
Keeps the latest `MOST` if they come faster than they are heard. What comes again and again in the same words is logged
once in `TOLD_AGAIN`, and of a store or hub, which is asked several times a second, also delivered once in that time.
Where the partition goes on and no error has come for `PASSED`, that is logged, and the same words are news. What a
handler raises is delivered each time.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from leasehold.clock import Clock
from leasehold.errors import AlreadyInUse, HubError, SchemaMismatch, SinkError, StoreError, is_waited_out
from leasehold.processors.events.leaving import is_quiet, means_to_leave
from leasehold.told import Told

logger = logging.getLogger(__name__)

OnError = Callable[[BaseException, "str | None"], object]
"""Takes an error and the partition that it is about: None for the hub, the stores, or the balancing."""

MOST = 1_000
TOLD_AGAIN = 300.0
"""Seconds until an error is told again that is reported in the same words about the same partition."""
PASSED = 10.0
"""Seconds after which an error that did not come again has passed; what fails and succeeds in turns is no news."""


class ErrorReports:
    """Logs errors, and hands them to `on_error` in a thread of its own. `leave` hears if one is to end the program."""

    def __init__(
        self, on_error: OnError | None, clock: Clock, leave: Callable[[BaseException], None] = lambda error: None
    ) -> None:
        self._on_error = on_error
        self._leave = leave
        self._clock = clock
        self._told = Told(TOLD_AGAIN)
        self._troubled: set[str] = set()  # partitions that something was logged of
        self._changed = threading.Condition()
        self._waiting: deque[tuple[BaseException, str | None]] = deque(maxlen=MOST)
        self._ended = False
        self.thread = threading.Thread(target=self._run, name="leasehold-errors")

    def start(self) -> None:
        """Begin to deliver."""
        if self._on_error is not None:
            self.thread.start()

    def report(self, error: BaseException, partition: str | None = None, *, logged: bool = False) -> None:
        """Log an error, unless somebody has, and have it delivered, if it is time for it. Never waits."""
        said, service = f"{type(error).__name__}: {error}", isinstance(error, StoreError | HubError)
        news = self._told.is_news(partition, said, self._clock.monotonic())
        with self._changed:
            if self._on_error is not None and (news or not service):
                self._waiting.append((error, partition))
                self._changed.notify_all()
        if is_quiet(error):
            logger.info("nobody reads the standard output any more: stopping")
        elif news and not logged:
            if partition is not None:
                self._troubled.add(partition)
            about = "the processor" if partition is None else f"partition {partition}"
            of_table = isinstance(error, SinkError | SchemaMismatch | AlreadyInUse)
            traced = error.__traceback__ is not None and not (service or of_table or is_waited_out(error, worked=True))
            logger.warning("%s: %s", about, said, exc_info=error if traced else None)

    def goes_on(self, partition: str) -> None:
        """The work on this partition has come further. Called with each batch or event, so it mostly does nothing."""
        if partition in self._troubled and self._told.has_passed(partition, self._clock.monotonic() - PASSED):
            self._troubled.discard(partition)
            logger.warning("partition %s goes on again", partition)

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
            except BaseException as failure:
                logger.exception("on_error failed on %r", error)
                if means_to_leave(failure):
                    self._leave(failure)
