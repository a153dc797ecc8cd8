"""Faults on demand: what a network and a busy service do to their clients.

Owns the API by which a test asks any of the servers for them while clients are connected. Each fault is one that the
real services show; what only one of them shows is in its own subclass. Safe for threads; takes effect at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from threading import Lock

from leasehold_testkit.emulators.amqp.conditions import SERVER_BUSY, AmqpError


class Work(StrEnum):
    """What can be throttled."""

    ATTACH = "attach"
    """A link to a hub or a queue: the official clients try again by their retry policies."""
    SEND = "send"
    """A message that a producer sent: `azure-eventhub` (5.15) raises `EventDataSendError` at once."""


class AmqpFaults:
    """The faults of one server, of whatever kind."""

    def __init__(self, drop: Callable[[], int], detach: Callable[[AmqpError, str | None], int]) -> None:
        self._drop = drop
        self._detach = detach
        self._lock = Lock()
        self._throttled = dict.fromkeys(Work, 0)
        self._refusing = False
        self._delay = 0.0
        self._refused: tuple[str, int] | None = None

    def drop_connections(self) -> int:
        """Cut every connection without a word, as a network does; return how many there were."""
        return self._drop()

    @contextmanager
    def refusing_connections(self) -> Iterator[None]:
        """Within the block no new connection comes about; those that are there stay."""
        self._refusing = True
        try:
            yield
        finally:
            self._refusing = False

    def throttle(self, times: int, work: Work = Work.ATTACH) -> None:
        """Answer this many of the next attaches or sends with `com.microsoft:server-busy`."""
        with self._lock:
            self._throttled[work] = times

    @contextmanager
    def slowed_down(self, seconds: float) -> Iterator[None]:
        """Within the block each attach, send and read of messages takes so much longer."""
        self._delay = seconds
        try:
            yield
        finally:
            self._delay = 0.0

    @contextmanager
    def refusing_sends(self, condition: str, *, least: int = 1) -> Iterator[None]:
        """Within the block each send of `least` messages or more is refused with this condition, for what it is."""
        self._refused = condition, least
        try:
            yield
        finally:
            self._refused = None

    # what the server asks

    @property
    def refusing(self) -> bool:
        """Whether a new connection is refused now."""
        return self._refusing

    @property
    def delay(self) -> float:
        """How long to wait, in seconds, before a piece of work."""
        return self._delay

    def check(self, work: Work) -> None:
        """Raise `AmqpError` if this piece of work is to be throttled."""
        with self._lock:
            if not self._throttled[work]:
                return
            self._throttled[work] -= 1
        raise AmqpError(SERVER_BUSY, "the server is busy: try again in a while (a fault on demand)")

    def check_sent(self, count: int) -> None:
        """Raise `AmqpError` if a send of this many messages is to be refused."""
        refused = self._refused
        if refused is not None and count >= refused[1]:
            raise AmqpError(refused[0], f"a send of {count} is refused (a fault on demand)")
