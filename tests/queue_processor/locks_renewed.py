"""Locks that a processor renews again and again, and that end at the server unless they were renewed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from leasehold.queues import QueueMessage
from leasehold.queues.locks import Answered, LockTimes, LockTrust
from leasehold.queues.service_bus.queue import ServiceBusQueue
from tests.queues.servers import LOCK, Server
from tests.waiting import until

OFTEN = 0.02  # seconds between two renewals, at least


class Renewals:
    """Counts, by message, the renewals that the service has confirmed; trust ends with a lock that was lost alone."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server, self._confirmed = server, Counter[int]()
        renew = ServiceBusQueue.renew

        def renewed(queue: ServiceBusQueue, messages: Sequence[QueueMessage]) -> list[QueueMessage]:
            found = renew(queue, messages)
            self._confirmed.update(message.sequence_number for message in found)
            return found

        def trust(times: LockTimes, message: QueueMessage, answered: Answered) -> LockTrust:
            return LockTrust(math.inf, answered.sent + OFTEN)

        monkeypatch.setattr(ServiceBusQueue, "renew", renewed)
        for name in ("received", "renewed"):
            monkeypatch.setattr(LockTimes, name, trust)

    def outlast(self, messages: Iterable[int], locks: int = 2) -> None:
        """Let more than this many times pass for which a lock lasts, and see each of these renewed in between."""
        numbers = [*messages]
        for _ in range(2 * locks):
            before = self._confirmed.copy()

            def renewed(before: Counter[int] = before) -> bool:
                """Twice: the first may have been under way while time passed."""
                return all(self._confirmed[number] >= before[number] + 2 for number in numbers)

            until(renewed, "renewals of the locks")
            self._server.let_pass(0.6 * LOCK)
