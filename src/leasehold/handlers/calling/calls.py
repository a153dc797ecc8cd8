"""How a table's handler is called: here and now, or with a time-out in processes of its own.

Owns the choice between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from leasehold.handlers import opened
from leasehold.handlers.calling.limits import TimeLimit, check_timeout, within
from leasehold.handlers.calling.processes import HandlerProcesses, named
from leasehold.handlers.contract import EntityEvent, EntityHandler

__all__ = ["HandlerCalls"]


class HandlerCalls:
    """The calls of one handler, from any thread. `timeout` in seconds, None for no limit. Raises `ConfigError`.

    Those of a batch that hang may take `at_most` seconds together. `beside`: a call that takes long goes on while
    others are called, if it has a time-out (`processes`).
    """

    def __init__(
        self, handler: EntityHandler, timeout: float | None, hand_over_timeout: float, *, beside: bool = False
    ) -> None:
        self._handler, self.timeout = handler, timeout
        self.at_most = check_timeout(timeout, hand_over_timeout)
        self._processes: HandlerProcesses | None = None
        self._shared: TimeLimit | None = None
        if timeout is not None:
            self._processes = HandlerProcesses(handler.function.__name__, named(handler), timeout, beside=beside)

    def limit(self) -> TimeLimit:
        """The limit of one batch."""
        return TimeLimit(self.timeout, self.at_most) if self._shared is None else self._shared

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Let all batches of the block have one limit, half of what one has. For who works on partitions by turns."""
        self._shared = TimeLimit(self.timeout, max(self.timeout or 0.0, self.at_most / 2))
        try:
            yield
        finally:
            self._shared = None

    def within(
        self,
        limit: TimeLimit,
        before: Collection[int] = (),
        goes_on: Callable[[EntityEvent, bool], None] | None = None,
    ) -> EntityHandler:
        """The handler within a limit; `before` are the numbers of events that hung in earlier batches.

        `goes_on` is told of an event whose call has not ended, and whether it has only begun: it is to be asked for
        again.
        """
        if self._processes is None:
            return self._handler
        return within(limit, self._handler, self._processes, before, goes_on)

    def leave(self, hub: str, partition: str) -> None:
        """End the calls that go on for events of a partition: it is another owner's."""
        if self._processes is not None:
            self._processes.leave(hub, partition)

    def close(self) -> None:
        """End the processes, and close what the handler has opened in this one. The next call does both anew."""
        if self._processes is not None:
            self._processes.close()
        opened.close(self._handler.opens)
